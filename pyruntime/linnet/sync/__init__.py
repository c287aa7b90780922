"""Training on many machines: servers and workers that share variables over linnet's own protocol (docs/protocol.md).
The work is done by liblinnet_sync, opened at first use beside liblinnet."""

from __future__ import annotations

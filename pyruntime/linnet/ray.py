"""linnet.ray: training on a Ray cluster. This is the public name of linnet.sync.ray."""

from linnet.sync.ray import Job, run

__all__ = ["Job", "run"]

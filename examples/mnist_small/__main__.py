"""`python -m examples.mnist_small`: run the digit demo alone.
All options are those of `demo.main`."""

from .demo import main

raise SystemExit(main())

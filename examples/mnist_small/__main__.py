"""`python -m examples.mnist_small`: runs only the digit demo.
It has the options of `demo.main`."""

from .demo import main

raise SystemExit(main())

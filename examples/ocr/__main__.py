"""`python -m examples.ocr`: runs only the OCR demo, without the fallback of `examples/demo.py`.
It has the options of `demo.main`."""

from .demo import main

raise SystemExit(main())

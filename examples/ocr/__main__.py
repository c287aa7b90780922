"""`python -m examples.ocr`: run the OCR demo alone, without the fallback of `examples/demo.py`.
All options are those of `demo.main`."""

from .demo import main

raise SystemExit(main())

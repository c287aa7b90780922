"""How close quantized networks stay to their own f32 on real tasks, beside ONNX Runtime's static quantizer.
`python -m tests.accuracy` measures; each network is one `Entry` in models_*.py."""

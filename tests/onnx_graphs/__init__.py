"""Random valid ONNX graphs: a builder adds node after node, with one module of makers per family of ops.
Every choice comes from a `random.Random`: a seeded one, or hypothesis's, which can shrink failures."""

"""Random valid ONNX graphs: a builder that grows a graph node by node, one module of makers per family of ops.
Every choice comes from a `random.Random`: a seeded one, or hypothesis's, which can shrink what fails."""

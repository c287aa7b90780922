"""The graph in memory: types, tensors, nodes, functions, and shape inference."""

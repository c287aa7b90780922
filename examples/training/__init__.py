"""The training examples. One command runs each, such as `python -m examples.training.softmax_mnist`.
`README.md` lists them. Every example prints its result and draws its learning curve."""

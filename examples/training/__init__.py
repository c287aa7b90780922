"""Training, one command each: `python -m examples.training.softmax_mnist` and so on; `README.md` lists them.
Every example prints what it learnt and draws its curve."""

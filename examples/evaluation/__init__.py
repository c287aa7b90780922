"""Evaluations of linnet that follow published ones: the TensorFlow paper of OSDI 2016 (section 6), convnet-benchmarks and
DeepBench. Each is one command: `python -m examples.evaluation` lists them."""

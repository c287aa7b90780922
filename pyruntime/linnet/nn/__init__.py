"""Layers as plain functions. Each takes a tensor, creates its variables in the current scope, and returns a tensor.
`with graph.scope("net", reuse=True):` builds the same network again with the same variables, for example for inference.
"""

from linnet.builder.ops import (
    elu,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanh,
)
from linnet.clib.arguments import check_all
from linnet.nn.activations import gelu_tanh, log_softmax, prelu, softmax
from linnet.nn.attention import (
    additive_attention,
    learned_positions,
    multi_head_attention,
    scaled_dot_product_attention,
    sinusoidal_positions,
    transformer_decoder_layer,
    transformer_encoder_layer,
)
from linnet.nn.convolution import conv, conv_transpose, depthwise_conv, separable_conv
from linnet.nn.linear import dense, embedding, flatten
from linnet.nn.normalization import batch_norm, group_norm, instance_norm, layer_norm
from linnet.nn.pooling import avg_pool, global_avg_pool, global_max_pool, max_pool
from linnet.nn.randomness import dropout, gaussian_noise, random_normal, random_uniform
from linnet.nn.recurrent import gru, lstm, rnn

__all__ = [
    "additive_attention", "avg_pool", "batch_norm", "conv", "conv_transpose", "dense", "depthwise_conv", "dropout", "elu",
    "embedding", "flatten",
    "gaussian_noise", "gelu", "gelu_tanh", "global_avg_pool", "global_max_pool", "group_norm", "gru", "hard_sigmoid",
    "hard_swish", "instance_norm", "layer_norm", "leaky_relu", "learned_positions", "log_softmax", "lstm", "max_pool", "mish",
    "multi_head_attention", "prelu", "random_normal", "random_uniform", "relu", "relu6", "rnn",
    "scaled_dot_product_attention", "selu", "separable_conv", "sigmoid", "silu", "sinusoidal_positions", "softmax",
    "softplus", "softsign", "tanh", "transformer_decoder_layer", "transformer_encoder_layer",
]  # fmt: skip

check_all(globals(), __all__)

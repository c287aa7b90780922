"""The least values of attributes and of constant operands that are sizes, steps or counts. All nodes are checked before their
rules run, so that no rule divides by a size of 0 or makes a tensor of a negative size."""

from __future__ import annotations

from onnx import AttributeProto

from linnet.converters.onnx.operation import Operation
from linnet.converters.problems import OutOfRange, refuse_below

# In every op that has an attribute of this name, the attribute or each of its numbers is at least this.
_ATTRIBUTES = {
    "blocksize": 1, "dilations": 1, "group": 1, "hidden_size": 1, "kernel_shape": 1, "kv_num_heads": 1,
    "max_gram_length": 1, "max_skip_count": 0, "min_gram_length": 1, "ngram_counts": 0, "ngram_indexes": 0,
    "num_groups": 1, "num_outputs": 1, "num_scan_inputs": 1, "offset_group": 1, "output_height": 1, "output_padding": 0,
    "output_width": 1, "p": 1, "pooled_shape": 1, "q_num_heads": 1, "sample_size": 1, "sampling_ratio": 0, "split": 0,
    "strides": 1,
}  # fmt: skip
# Lowest values of attributes of single ops: other ops use these names for something else, or allow 0.
_OF_OPS = {
    ("LRN", "size"): 1, ("ConvTranspose", "output_shape"): 1, ("TopK", "k"): 0, ("Attention", "num_heads"): 1,
    ("MultiHeadAttention", "num_heads"): 1, ("GroupQueryAttention", "num_heads"): 1, ("RotaryEmbedding", "num_heads"): 0,
    ("RotaryEmbedding", "rotary_embedding_dim"): 0, ("QuantizeLinear", "block_size"): 0,
    ("DequantizeLinear", "block_size"): 0, ("MatMulNBits", "block_size"): 1, ("MatMulNBits", "K"): 1,
    ("MatMulNBits", "N"): 1, ("GatherBlockQuantized", "block_size"): 1, ("RandomNormal", "shape"): 0,
    ("RandomUniform", "shape"): 0, ("Tile", "tiles"): 0,
}  # fmt: skip
# By op: its operands that are sizes, steps or counts. number: (name, least value)
_OPERANDS: dict[str, dict[int, tuple[str, int]]] = {
    "AffineGrid": {1: ("size", 1)},
    "BlackmanWindow": {0: ("size", 1)},
    "CenterCropPad": {1: ("shape", 0)},
    "Col2Im": {1: ("image_shape", 1), 2: ("block_shape", 1)},
    "ConstantOfShape": {0: ("the shape", 0)},
    "DFT": {1: ("dft_length", 1)},
    "GRU": {4: ("sequence_lens", 0)},
    "HammingWindow": {0: ("size", 1)},
    "HannWindow": {0: ("size", 1)},
    "LSTM": {4: ("sequence_lens", 0)},
    "MaxUnpool": {2: ("output_shape", 1)},
    "MelWeightMatrix": {0: ("num_mel_bins", 1), 1: ("dft_length", 1), 2: ("sample_rate", 1)},
    "NonMaxSuppression": {2: ("max_output_boxes_per_class", 0)},
    "OneHot": {1: ("depth", 1)},
    "RNN": {4: ("sequence_lens", 0)},
    "Resize": {3: ("sizes", 0)},
    "ReverseSequence": {1: ("sequence_lens", 0)},
    "STFT": {1: ("frame_step", 1), 3: ("frame_length", 1)},
    "Split": {1: ("split", 0)},
    "SplitToSequence": {1: ("split", 0)},
    "Tile": {1: ("repeats", 0)},
    "TopK": {1: ("k", 0)},
}
_NOT_ZERO = {"Range": {2: "delta"}, "Slice": {4: "steps"}}


def check(op: Operation) -> None:
    """Raises Unsupported if an attribute or a constant operand of a node is out of range."""
    kind = op.node.op_type
    for attribute in op.node.attribute:
        least = _OF_OPS.get((kind, attribute.name), _ATTRIBUTES.get(attribute.name))
        if least is not None and attribute.type in (AttributeProto.INT, AttributeProto.INTS):
            values = [attribute.i] if attribute.type == AttributeProto.INT else list(attribute.ints)
            refuse_below(f"attribute {attribute.name!r}", values, least)
    for index, (name, least) in _OPERANDS.get(kind, {}).items():
        refuse_below(f"input {index} ({name})", _numbers(op, index), least)
    for index, name in _NOT_ZERO.get(kind, {}).items():
        if 0 in _numbers(op, index):
            raise OutOfRange(f"input {index} ({name}) is 0, and must not be", "the model is damaged: export it again")
    parts = [a.i for a in op.node.attribute if (kind, a.name) == ("Split", "num_outputs")]
    if parts and parts[0] != len(op.node.output):
        what = f"num_outputs is {parts[0]}, but the node has {len(op.node.output)} outputs"
        raise OutOfRange(what, "the model is damaged: export it again")
    if kind == "SplitToSequence" and (given := op.any(1)) is not None and getattr(given, "rank", None) == 0:
        refuse_below("input 1 (split)", _numbers(op, 1), 1)  # the size of every part


def _numbers(op: Operation, index: int) -> list[float]:
    """The numbers of a constant operand; none if it is absent or not a constant."""
    data = getattr(op.any(index), "data", None)
    return [] if data is None else [float(v) for v in data.reshape(-1)]

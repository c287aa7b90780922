"""linnet.ops: the ops as functions. The public name of linnet.builder.ops. Modules inside the package import
linnet.builder.ops."""

from linnet.builder.generated import *  # noqa: F403
from linnet.builder.ops import *  # noqa: F403
from linnet.builder.ops import __all__ as __all__
from linnet.clib.arguments import check_all

check_all(globals(), __all__)

/* longtail_lines.inc.c - the long-tail kernels that go over lines of values: attention, norms, pooling, recurrent
 * cells, softmax. GCC's -Os would make them up to half slower: they are no part of longtail.inc.c. Included after
 * simd/simd.h. */
#include "kernel/common/inline.h"

#include "fast/tail/attention.inc.c"
#include "fast/tail/norm.inc.c"
#include "fast/tail/pool.inc.c"
#include "fast/tail/softmax.inc.c"

#include "fast/tail/recurrent.inc.c"

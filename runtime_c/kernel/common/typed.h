/* typed.h - compiles the body of a float reference kernel once per storage type.
 * Define LN_TYPED as the quoted name of the body file, then include this file, as often as there are bodies. It has no
 * include guard on purpose. */
/* The body sees four macros: STORED is the type of an element in memory, LOAD(v) converts such an element to a number,
   STORE(v) converts back, and TYPED(name) appends the storage type to a name. Bodies sum in double for every storage
   type, because the fast kernels are tested against the references. */
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

#define STORED float
#define LOAD(v) (v)
#define STORE(v) ((float)(v))
#define TYPED(name) PASTE(name, _f32)
#include LN_TYPED
#undef STORED
#undef LOAD
#undef STORE
#undef TYPED

#define STORED double
#define LOAD(v) (v)
#define STORE(v) (v)
#define TYPED(name) PASTE(name, _f64)
#include LN_TYPED
#undef STORED
#undef LOAD
#undef STORE
#undef TYPED

/* f16 and bf16 share one body, which is slower but rarely runs, because fast kernels take these types. The body looks
   at the dtype of the first operand of `call`. */
#define STORED uint16_t
#define LOAD(v) (call->inputs[0].dtype == LINNET_F16 ? ln_f16_to_f32(v) : ln_bf16_to_f32(v))
#define STORE(v) (call->inputs[0].dtype == LINNET_F16 ? ln_f32_to_f16((float)(v)) : ln_f32_to_bf16((float)(v)))
#define TYPED(name) PASTE(name, _half)
#include LN_TYPED
#undef STORED
#undef LOAD
#undef STORE
#undef TYPED

#undef PASTE
#undef PASTE_
#undef LN_TYPED

/* Calls the variant of `function` for a float dtype. The other arguments are passed on. */
#ifndef LN_TYPED_CALL
#define LN_TYPED_CALL(dtype, function, ...)                                                                            \
    ((dtype) == LINNET_F32   ? function##_f32(__VA_ARGS__)                                                             \
     : (dtype) == LINNET_F64 ? function##_f64(__VA_ARGS__)                                                             \
                             : function##_half(__VA_ARGS__))
#endif

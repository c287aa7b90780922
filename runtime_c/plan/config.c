/* config.c - refuses a linnet_plan_config with a value that is out of range.
 */
#include "plan/plan.h"

linnet_status ln_check_plan_config(const linnet_plan_config *c, linnet_error *error) {
    const char *wrong = NULL;
    if (c->shape_count < 0 || (c->shape_count > 0 && c->shapes == NULL))
        wrong = "shapes";
    else if (c->bound_count < 0 || (c->bound_count > 0 && c->bounds == NULL))
        wrong = "bounds";
    else if (c->fetch_count < 0 || (c->fetch_count > 0 && c->fetches == NULL))
        wrong = "fetches";
    else if (c->feed_count < 0 || (c->feed_count > 0 && c->feeds == NULL))
        wrong = "feeds";
    else if (c->reference < 0 || c->reference > 2)
        wrong = "reference";
    else if (c->threads < 0 || c->threads > 1024)
        wrong = "threads";
    else if (c->device_count < 0 || c->device_count > 32 || (c->device_count > 0 && c->devices == NULL))
        wrong = "devices";
    else if (c->placement_count < 0 || (c->placement_count > 0 && c->placement == NULL))
        wrong = "placement";
    if (wrong != NULL) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_config.%s is out of range", wrong);
        return ln_hint(error, "initialize linnet_plan_config with linnet_plan_config_init");
    }
    if (c->precision >= LINNET_PRECISION_F32 && c->precision <= LINNET_PRECISION_TF32) return LINNET_OK;
    ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_config.precision is out of range");
    ln_expected(error, "0 (f32), 1 (f16), 2 (bf16) or 3 (tf32)");
    ln_got(error, "%d", (int)c->precision);
    return ln_hint(error, "use a linnet_precision of linnet.h");
}

/* device_host.c - the table of linnet's functions that libraries of devices get (linnet_device.h). */
#include "linnet_device.h"

const linnet_host *linnet_device_host(void) {
    static const linnet_host table = {
        .struct_size = sizeof(linnet_host),
        .dtype_name = linnet_dtype_name,
        .step_op = linnet_step_op,
        .step_name = linnet_step_name,
        .step_input_count = linnet_step_input_count,
        .step_output_count = linnet_step_output_count,
        .step_get_input = linnet_step_get_input,
        .step_get_output = linnet_step_get_output,
        .step_integers = linnet_step_integers,
        .step_floats = linnet_step_floats,
        .step_precision = linnet_step_precision,
        .step_get_counts = linnet_step_get_counts,
        .step_evaluate = linnet_step_evaluate,
        .step_get_map = linnet_step_get_map,
        .step_get_result = linnet_step_get_result,
        .map_get_opcode = linnet_map_get_opcode,
        .step_map_source = linnet_step_map_source,
        .map_prelude = linnet_map_prelude,
        .step_result_source = linnet_step_result_source,
        .step_get_requant = linnet_step_get_requant,
        .step_body = linnet_step_body,
        .body_step = linnet_body_step,
        .body_get_input = linnet_body_get_input,
        .body_get_output = linnet_body_get_output,
    };
    return &table;
}

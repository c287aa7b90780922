/* file_import.h - the model's file as a buffer of a device. */
#ifndef LN_PLAN_FILE_IMPORT_H
#define LN_PLAN_FILE_IMPORT_H

#include "plan/plan.h"

/* Make the model's file a buffer of the device if the device can read memory of the host, and release this buffer. */
void ln_device_take_file(linnet_model *model, ln_device *device);
void ln_device_give_file(linnet_model *model, ln_device *device);

#endif

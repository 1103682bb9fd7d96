/* mock_device.h - a device for tests, "mock": nobody reaches its memory but its own calls, and what is asked of it is
 * done late. */
#pragma once

#include <stdint.h>

/* Makes it known to the library; again: nothing. */
void mock_device_add(void);

/* Kernels that it ran, of all ranks, since the process began. */
int64_t mock_device_kernels(void);

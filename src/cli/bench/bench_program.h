/* bench_program.h - whether `cleave bench` is given a program of JAX or PyTorch, not a model. */
#pragma once

#include "cli/command.h"

bool clv_bench_names_program(const clv_invocation *run);

/** @file cleave.h - all of the library.
 *
 * From a folder to results: model.h, then generate.h, embed.h, score.h, forward.h, train.h. From ops to a running
 * program: graph.h, op.h, nn.h and rules.h, then program.h (machine.h), session.h; by hand: spmd.h. What layouts cost:
 * plan.h. Programs of JAX and PyTorch: import.h; graphs for them, as StableHLO text: export.h; layouts in the words of
 * others: formats.h. Over several processes: job.h; what they did last: flight.h; when: trace.h. What tensors are and
 * where they live: dtype.h, mesh.h, layout.h, reshard.h.
 *
 * **Structs.** A struct that may grow begins with `size_t size`: sizeof the struct, or 0 for the struct as version 1.0
 * has it (before 1.0: as it is now). In options the caller sets it with the other fields, in what the library fills
 * before the call. A program built against older headers goes on as before: what its structs lack is 0, and what is
 * beyond them is not touched. A later struct, whose size is larger, is taken as long as what this version does not know
 * is 0 (else CLV_EUNSUPPORTED), and filled with 0 there. No struct will ever have more than 64 KiB: a larger size, or
 * one that no version had, is CLV_EINVAL. All other structs stay as they are; those that end with `reserved` have room,
 * which is zeros (else CLV_EUNSUPPORTED). Handles (clv_model, clv_session, ...) are opaque. Values of enums stay.
 *
 * **Stability.** From 1.0 on functions marked CLV_API keep their behaviour in every 1.x; those marked CLV_EXPERIMENTAL
 * may change in any release. Before 1.0 any header may change; CHANGELOG.md lists how.
 *
 * **Threads.** Each header says what threads may share. As a rule: what is made once (models, programs, machines,
 * plans, tokenizers) is immutable and shared; what runs (sessions, generators, forwarders, trainers) belongs to one
 * thread at a time; a graph is built by one.
 */
#ifndef CLEAVE_CLEAVE_H
#define CLEAVE_CLEAVE_H

#include "cleave/cancel.h"
#include "cleave/checkpoint.h"
#include "cleave/corpus.h"
#include "cleave/data.h"
#include "cleave/dtype.h"
#include "cleave/embed.h"
#include "cleave/evaluate.h"
#include "cleave/export.h"
#include "cleave/family.h"
#include "cleave/flight.h"
#include "cleave/formats.h"
#include "cleave/forward.h"
#include "cleave/generate.h"
#include "cleave/graph.h"
#include "cleave/import.h"
#include "cleave/job.h"
#include "cleave/layout.h"
#include "cleave/machine.h"
#include "cleave/mesh.h"
#include "cleave/model.h"
#include "cleave/nn.h"
#include "cleave/op.h"
#include "cleave/plan.h"
#include "cleave/plan_estimate.h"
#include "cleave/plan_search.h"
#include "cleave/program.h"
#include "cleave/reshard.h"
#include "cleave/rng.h"
#include "cleave/rules.h"
#include "cleave/score.h"
#include "cleave/sequences.h"
#include "cleave/session.h"
#include "cleave/spmd.h"
#include "cleave/status.h"
#include "cleave/text.h"
#include "cleave/tokenizer.h"
#include "cleave/trace.h"
#include "cleave/train.h"

#endif

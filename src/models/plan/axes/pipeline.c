/* pipeline.c - computes pipeline schedules: layers of each stage, microbatches in flight, the bubble. */
#include "models/plan/axes/pipeline.h"

#include <math.h>

#include "program/program.h"

/* Layers of virtual stage `at` of all. */
static int64_t layers_at(const clv_pipeline *p, int64_t at)
{
    const int64_t all = p->stages * p->virtual_stages, rest = p->layers % all;
    const int64_t place = at == all - 1 ? all - 1 : at == 0 ? all - 2 : at - 1;
    return p->layers / all + (place < rest);
}

int64_t clv_pipeline_layers(const clv_pipeline *p, int64_t stage)
{
    int64_t layers = 0;
    for (int64_t at = stage; at < p->stages * p->virtual_stages; at += p->stages)
        layers += layers_at(p, at);
    return layers;
}

static double most_held(const clv_pipeline *p, int64_t stage, bool has_begun_backward)
{
    const clv_pipeline_shape shape = {
        .schedule = p->schedule, .stages = p->stages, .runs = p->virtual_stages, .microbatches = p->microbatches};
    return (double)clv_pipeline_most_held(&shape, stage, has_begun_backward) / (double)p->virtual_stages;
}

double clv_pipeline_in_flight(const clv_pipeline *p, int64_t stage)
{
    return most_held(p, stage, false);
}

double clv_pipeline_begun(const clv_pipeline *p, int64_t stage)
{
    return most_held(p, stage, true);
}

/* Where fewer microbatches than stages go round, each round waits for the last stage. */
static double waits_between_rounds(const clv_pipeline *p)
{
    return p->microbatches < p->stages ? (double)((p->stages - p->microbatches) * (p->virtual_stages - 1)) : 0;
}

double clv_pipeline_bubble(const clv_pipeline *p, const clv_stage_time *stage)
{
    double sum = 0, most = 0, waits = 0;
    for (int64_t s = 0; s < p->stages; s++) {
        const clv_stage_time *t = &stage[s];
        double whole = t->forward + t->backward, added = whole / (double)p->virtual_stages;
        added -= p->schedule == CLV_SCHEDULE_ZERO_BUBBLE ? 2 * t->weights / (double)p->virtual_stages : 0;
        waits = fmax(waits, whole / (double)p->virtual_stages * waits_between_rounds(p));
        most = fmax(most, added);
        sum += added;
    }
    return sum - most + waits;
}

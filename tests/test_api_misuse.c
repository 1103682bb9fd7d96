/* test_api_misuse.c - NULL and misuse at the public edge: every function of include/cleave is called with what it must
 * refuse, and the headers are searched for one that is not. What returns a status returns CLV_EINVAL; what does not
 * returns nothing: 0, NULL, CLV_NONE, an empty text. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit_test.h"

#include "cleave/cleave.h"

static clv_error err;
static clv_mesh mesh;
static clv_graph *graph;
static clv_value x; /* f32[4,4] of the graph */
static clv_layout layout;
static clv_axis_rules rules;
static const int64_t shape[2] = {4, 4};
static const clv_subaxis sub = {.axis = 0, .pre = 1, .size = 2};

/* `call`'s last argument is &err. */
#define REFUSED(call)                                                                                                  \
    do {                                                                                                               \
        err = (clv_error){0};                                                                                          \
        if ((call) != CLV_EINVAL || err.message[0] == '\0')                                                            \
            fail_msg("%s: %s '%s'", #call, clv_status_name(err.code), err.message);                                    \
    } while (0)
#define NOTHING(call)                                                                                                  \
    do {                                                                                                               \
        if (call)                                                                                                      \
            fail_msg("%s", #call);                                                                                     \
    } while (0)
#define NO_VALUE(call) NOTHING((call).id != 0)

static void make(void)
{
    assert_int_equal(clv_mesh_parse(&mesh, "model=2", NULL), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
    layout = clv_layout_replicated(2);
    rules = clv_graph_axis_rules(graph, "megatron");
    x = clv_input(graph, "x", CLV_F32, 2, shape, NULL);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_OK);
}

static int set_up(void **state)
{
    make();
    return 0;
}

static int tear_down(void **state)
{
    clv_graph_free(graph);
    return 0;
}

static void test_statuses_and_dtypes(void **state)
{
    clv_dtype dtype;
    double one = 1;

    clv_cancel_request(NULL);
    clv_cancel_reset(NULL);
    NOTHING(clv_cancel_requested(NULL));
    clv_handle_sigbus(); /* no copy from a mapping is under way */
    assert_string_equal(clv_status_name((clv_status)-1), "unknown");
    assert_string_equal(clv_status_text((clv_status)99), clv_status_text((clv_status)-1));
    assert_string_equal(clv_dtype_name((clv_dtype)99), "unknown");
    NOTHING(clv_dtype_size((clv_dtype)-1));
    NOTHING(clv_dtype_is_float((clv_dtype)99));
    REFUSED(clv_dtype_parse(NULL, "f32", &err));
    REFUSED(clv_dtype_parse(&dtype, NULL, &err));
    REFUSED(clv_shape_check(NULL, 2, CLV_F32, &err));
    NOTHING(clv_dtype_load(CLV_F64, NULL, 0) != 0);
    NOTHING(clv_dtype_load((clv_dtype)99, &one, 0) != 0);
    clv_dtype_store(CLV_F64, NULL, 0, 1);
    clv_dtype_store((clv_dtype)99, &one, 0, 2);
    clv_dtype_convert(CLV_F32, NULL, CLV_F64, &one, 1);
    clv_dtype_convert(CLV_F64, &one, CLV_F64, NULL, 1);
    NOTHING(one != 1);
    NOTHING(clv_dtype_first_nonfinite(CLV_F32, NULL, 3) >= 0);
}

static void test_machines(void **state)
{
    clv_machine *out;
    clv_machine_info info = {.size = 1};
    clv_cpu_info cpu = {.size = 1};

    (void)state;
    REFUSED(clv_machine_open(NULL, "tpu-v2-8", NULL, &err));
    REFUSED(clv_machine_open(&out, NULL, NULL, &err));
    REFUSED(clv_machine_measure(NULL, NULL, &err));
    REFUSED(clv_machine_measure(&out, &(clv_measure_options){.ranks = -1}, &err));
    REFUSED(clv_machine_measure(&out, &(clv_measure_options){.blocks = 99}, &err));
    REFUSED(clv_machine_parse(NULL, "{}", 2, "p", &err));
    REFUSED(clv_machine_parse(&out, NULL, 2, "p", &err));
    REFUSED(clv_machine_parse(&out, "{}", 2, NULL, &err));
    REFUSED(clv_machine_write(NULL, "p", &err));
    REFUSED(clv_machine_with_hosts(NULL, NULL, 2, 4, 8, &err));
    REFUSED(clv_machine_with_hosts(&out, NULL, -1, 4, 8, &err));
    REFUSED(clv_machine_with_hosts(&out, NULL, 2, 4, 0, &err));
    REFUSED(clv_machine_with_hosts(&out, NULL, 2, 4, 9, &err));
    REFUSED(clv_machine_get_info(NULL, NULL, &err));
    REFUSED(clv_machine_get_info(NULL, &info, &err));
    REFUSED(clv_cpu_get_info(NULL, &err));
    REFUSED(clv_cpu_get_info(&cpu, &err));
    NOTHING(clv_machine_builtin_name(-1));
    NOTHING(clv_machine_builtin_name(99));
    NOTHING(clv_machine_flops(NULL, (clv_dtype)99));
    NOTHING(clv_machine_rate(NULL, NULL, CLV_F32, 1, 0));
    clv_machine_free(NULL);
    assert_int_equal(clv_machine_open(&out, "tpu-v2-8", NULL, &err), CLV_OK);
    REFUSED(clv_machine_write(out, NULL, &err));
    NOTHING(clv_machine_rate(out, "map", (clv_dtype)99, 1, 1));
    clv_machine_free(out);
}

static void test_random_numbers(void **state)
{
    clv_key key = clv_key_fold_in(clv_key_split(clv_key_seed(1), 2), 3);

    clv_threefry(key, 0, 0, NULL);
    clv_random_bits(NULL, key, 0, 4);
    clv_random_uniform(NULL, key, 0, 4, 0, 1);
    clv_random_normal(NULL, key, 0, 4);
    clv_random_truncated_normal(NULL, key, 0, 4, -1, 1);
    clv_init_fill(NULL, (clv_init){0}, key, 0, 4);
    clv_random_bits((uint32_t *)&key, key, 0, -1);
}

static void test_meshes(void **state)
{
    clv_mesh out;
    char text[8] = "x";
    int axis;

    REFUSED(clv_mesh_parse(NULL, "x=2", &err));
    REFUSED(clv_mesh_parse(&out, NULL, &err));
    NOTHING(clv_mesh_print(text, sizeof text, NULL));
    assert_string_equal(text, "");
    assert_int_equal(clv_mesh_print(NULL, 0, &mesh), 7);
    REFUSED(clv_mesh_check(NULL, &err));
    NOTHING(clv_mesh_rank_count(NULL));
    NOTHING(clv_mesh_equal(NULL, &mesh));
    NOTHING(clv_mesh_equal(&mesh, NULL));
    REFUSED(clv_mesh_find(NULL, &mesh, "x", &err));
    REFUSED(clv_mesh_find(&axis, NULL, "x", &err));
    REFUSED(clv_mesh_find(&axis, &mesh, NULL, &err));
    NOTHING(clv_mesh_whole_axis(NULL, 0).size);
    NOTHING(clv_mesh_whole_axis(&mesh, 7).size);
    NOTHING(clv_mesh_coordinate(NULL, sub, 1));
    NOTHING(clv_mesh_with_coordinate(NULL, sub, 1, 1));
    NOTHING(clv_mesh_group(NULL, &mesh, &sub, 1, 0));
    NOTHING(clv_mesh_group(&(int64_t){0}, NULL, &sub, 1, 0));
    NOTHING(clv_mesh_group(&(int64_t){0}, &mesh, NULL, 1, 0));
}

static void test_layouts(void **state)
{
    clv_layout out = layout;
    const clv_subaxis *subs;
    int64_t lo = 7, hi = 7;
    char text[8] = "x";

    NOTHING(clv_layout_replicated(-1).rank);
    REFUSED(clv_layout_parse(NULL, "_", &mesh, 1, &err));
    REFUSED(clv_layout_parse(&out, NULL, &mesh, 1, &err));
    REFUSED(clv_layout_parse(&out, "_", NULL, 1, &err));
    NOTHING(clv_layout_print(text, sizeof text, NULL, &mesh));
    assert_string_equal(text, "");
    NOTHING(clv_layout_print(text, sizeof text, &layout, NULL));
    REFUSED(clv_layout_check(NULL, &mesh, shape, &err));
    REFUSED(clv_layout_check(&layout, NULL, shape, &err));
    NOTHING(clv_layout_equal(NULL, &layout));
    NOTHING(clv_layout_equal(&layout, NULL));
    NOTHING(clv_layout_same_shards(NULL, &layout, &mesh, shape));
    NOTHING(clv_layout_same_shards(&layout, &layout, NULL, shape));
    NOTHING(clv_layout_same_shards(&layout, &layout, &mesh, NULL));
    REFUSED(clv_layout_shard_dim(NULL, &mesh, 0, sub, &err));
    REFUSED(clv_layout_shard_dim(&out, NULL, 0, sub, &err));
    REFUSED(clv_layout_shard_dim(&out, &mesh, 5, sub, &err));
    REFUSED(clv_layout_add_partial(NULL, &mesh, CLV_REDUCTION_SUM, sub, &err));
    REFUSED(clv_layout_add_partial(&out, NULL, CLV_REDUCTION_SUM, sub, &err));
    REFUSED(clv_layout_set_dim(NULL, &mesh, 0, &sub, 1, 1, &err));
    REFUSED(clv_layout_set_dim(&out, NULL, 0, &sub, 1, 1, &err));
    REFUSED(clv_layout_set_dim(&out, &mesh, 0, NULL, 1, 1, &err));
    REFUSED(clv_layout_set_dim(&out, &mesh, 5, &sub, 1, 1, &err));
    NOTHING(clv_layout_without_partial(NULL).rank);
    NOTHING(clv_subaxes_normalize(NULL, 3));
    NOTHING(clv_layout_axes(&subs, NULL, 0));
    NOTHING(clv_layout_axes(NULL, &layout, 0));
    NOTHING(clv_layout_axes(&subs, &layout, 9));
    NOTHING(clv_layout_block_count(NULL, 0));
    NOTHING(clv_layout_block_index(NULL, &mesh, 0, 0));
    NOTHING(clv_layout_block_index(&layout, NULL, 0, 0));
    NOTHING(clv_layout_uses_subaxis(NULL, sub));
    NOTHING(clv_layout_is_partial(NULL));
    NOTHING(clv_subaxis_overlap((clv_subaxis){.axis = 1, .pre = 1, .size = 2}, sub));
    NOTHING(clv_subaxis_contains((clv_subaxis){.axis = 1, .pre = 1, .size = 2}, sub));
    clv_block_range(4, 1, 2, 0, NULL, &hi);
    clv_block_range(4, 1, 2, 0, &lo, NULL);
    NOTHING(clv_layout_shard(NULL, &mesh, shape, 0).rank);
    NOTHING(clv_layout_shard(&layout, NULL, shape, 0).rank);
    NOTHING(clv_layout_shard(&layout, &mesh, NULL, 0).rank);
    NOTHING(clv_shard_elems(NULL));
    NOTHING(clv_layout_max_elems(NULL, shape));
    NOTHING(clv_layout_max_elems(&layout, NULL));
    NOTHING(clv_shard_intersect(NULL, &(clv_shard){.rank = 1}).rank);
    NOTHING(clv_shard_intersect(&(clv_shard){.rank = 1}, NULL).rank);
    NOTHING(clv_layout_max_received_elems(NULL, &layout, &mesh, shape));
    NOTHING(clv_layout_max_received_elems(&layout, NULL, &mesh, shape));
    NOTHING(clv_layout_max_received_elems(&layout, &layout, NULL, shape));
    NOTHING(clv_layout_max_received_elems(&layout, &layout, &mesh, NULL));
}

static void test_graphs(void **state)
{
    clv_graph *out;

    REFUSED(clv_graph_new(NULL, &mesh, &err));
    REFUSED(clv_graph_new(&out, NULL, &err));
    clv_graph_free(NULL);
    REFUSED(clv_graph_status(NULL, &err));
    assert_int_equal(clv_graph_clear_error(NULL), CLV_EINVAL);
    NOTHING(clv_graph_mesh(NULL));
    NOTHING(clv_graph_type(NULL, x).rank);
    NOTHING(clv_graph_layout(NULL, 2, "_,_").rank != 2);
    clv_graph_push_scope(NULL, "a");
    clv_graph_pop_scope(NULL);
    NO_VALUE(clv_input(NULL, "a", CLV_F32, 2, shape, NULL));
    NO_VALUE(clv_state(NULL, "a", CLV_F32, 2, shape, NULL, (clv_init){0}));
    NO_VALUE(clv_state_with_role(NULL, CLV_ROLE_BUFFER, "a", CLV_F32, 2, shape, NULL, (clv_init){0}));
    NOTHING(clv_graph_parameters(NULL, &x, 1));
    NOTHING(clv_graph_parameters(graph, NULL, 1));
    NOTHING(clv_value_name(NULL, x));
    NOTHING(clv_type_elems(NULL));
    NOTHING(clv_axis_rules_preset_name(-1));
    NOTHING(clv_axis_rules_preset_name(99));
    NOTHING(clv_value_name(graph, (clv_value){99}));
    NOTHING(clv_value_layout(NULL, x).rank);
    NOTHING(clv_value_layout(graph, (clv_value){99}).rank);
    clv_assign(NULL, x, x);
    clv_output(NULL, "a", x, NULL);
    clv_keep_stationary(NULL, x, "x");
}

/* A builder's failure is the graph's. */
#define FAILS_GRAPH(call)                                                                                              \
    do {                                                                                                               \
        tear_down(NULL);                                                                                               \
        make();                                                                                                        \
        call;                                                                                                          \
        REFUSED(clv_graph_status(graph, &err));                                                                        \
    } while (0)

static void test_builders(void **state)
{
    const clv_value far = {99};

    FAILS_GRAPH(clv_graph_layout(graph, 2, NULL));
    FAILS_GRAPH(clv_graph_push_scope(graph, NULL));
    FAILS_GRAPH(clv_graph_pop_scope(graph));
    FAILS_GRAPH(clv_input(graph, NULL, CLV_F32, 2, shape, NULL));
    FAILS_GRAPH(clv_input(graph, "a", CLV_F32, 2, NULL, NULL));
    FAILS_GRAPH(clv_state(graph, NULL, CLV_F32, 2, shape, NULL, (clv_init){0}));
    FAILS_GRAPH(clv_state(graph, "a", CLV_F32, 2, NULL, NULL, (clv_init){0}));
    FAILS_GRAPH(clv_assign(graph, far, x));
    FAILS_GRAPH(clv_assign(graph, x, far));
    FAILS_GRAPH(clv_output(graph, NULL, x, NULL));
    FAILS_GRAPH(clv_output(graph, "a", far, NULL));
    FAILS_GRAPH(clv_keep_stationary(graph, x, NULL));
    FAILS_GRAPH(clv_keep_stationary(graph, far, "x"));
    FAILS_GRAPH(clv_constrain(graph, x, NULL));
    FAILS_GRAPH(clv_gradients(graph, x, CLV_NONE, NULL, 1, NULL));
    FAILS_GRAPH(clv_einsum(graph, NULL, x, x));
    FAILS_GRAPH(clv_fill(graph, CLV_F32, 2, NULL, 0));
    FAILS_GRAPH(clv_reduce(graph, CLV_SUM, x, NULL, 1, false));
    FAILS_GRAPH(clv_reshape(graph, x, 2, NULL));
    FAILS_GRAPH(clv_transpose(graph, x, NULL));
    FAILS_GRAPH(clv_slice(graph, x, NULL, shape));
    FAILS_GRAPH(clv_slice(graph, x, shape, NULL));
    FAILS_GRAPH(clv_pad(graph, x, NULL, shape));
    FAILS_GRAPH(clv_pad(graph, x, shape, NULL));
    FAILS_GRAPH(clv_concat(graph, NULL, 2, 0));
    FAILS_GRAPH(clv_rope(graph, x, CLV_NONE, NULL));
    FAILS_GRAPH(clv_rotate(graph, x, CLV_NONE, CLV_NONE, false));
    FAILS_GRAPH(clv_graph_axis_rules(graph, "no such"));
    clv_named_layout(graph, NULL, 2, NULL);
    clv_residual_layout(graph, NULL, 2);
    NO_VALUE(clv_residual_input(NULL, "r", CLV_F32, 2, shape, NULL));
    FAILS_GRAPH(clv_residual_input(graph, NULL, CLV_F32, 2, shape, &rules));
    FAILS_GRAPH(clv_residual_input(graph, "r", CLV_F32, 2, NULL, &rules));
    FAILS_GRAPH(clv_residual_input(graph, "r", CLV_F32, 0, shape, &rules));
    clv_name_dims(NULL, x, (const char *[]){"a", "b"});
    FAILS_GRAPH(clv_name_dims(graph, x, NULL));
    FAILS_GRAPH(clv_name_dims(graph, (clv_value){99}, (const char *[]){"a", "b"}));
    clv_column_parallel_linear(graph, x, 4, NULL, &(clv_linear_options){0});
    FAILS_GRAPH(clv_column_parallel_linear(graph, x, 4, &rules, NULL));
    clv_row_parallel_linear(graph, x, 4, NULL, &(clv_linear_options){0});
    FAILS_GRAPH(clv_row_parallel_linear(graph, x, 4, &rules, NULL));
    clv_vocab_parallel_embedding(graph, x, 4, 4, CLV_F32, NULL, "a", (clv_init){0});
    clv_learned_positions(graph, x, CLV_NONE, 4, NULL, "a", (clv_init){0});
    FAILS_GRAPH(clv_learned_positions(graph, x, CLV_NONE, 4, &rules, NULL, (clv_init){0}));
    clv_vocab_parallel_logits(graph, x, x, NULL);
    clv_parallel_rms_norm(graph, x, NULL, "a", 1e-5);
    FAILS_GRAPH(clv_parallel_rms_norm(graph, x, &rules, NULL, 1e-5));
    clv_parallel_layer_norm(graph, x, NULL, "a", 1e-5, true);
    FAILS_GRAPH(clv_parallel_layer_norm(graph, x, &rules, NULL, 1e-5, true));
    clv_parallel_mlp(graph, x, NULL, &(clv_mlp_options){.ffn = 4});
    FAILS_GRAPH(clv_parallel_mlp(graph, x, &rules, NULL));
    clv_parallel_attention(graph, x, NULL, &(clv_self_attention_options){.heads = 2});
    FAILS_GRAPH(clv_parallel_attention(graph, x, &rules, NULL));
    clv_transformer_block(graph, x, NULL, &(clv_block_options){0});
    FAILS_GRAPH(clv_transformer_block(graph, x, &rules, NULL));
}

/* No graph: no value, whatever the operands. */
static void test_builders_without_a_graph(void **state)
{
    clv_value out[2] = {x, x};
    const clv_block_options block = clv_block_defaults(CLV_BLOCK_GPT, 2, 2, 8);
    const clv_attention_options attention = {0};
    const clv_rope_options rope = {.theta = 1e4};

    clv_gradients(NULL, x, CLV_NONE, &x, 1, out);
    NO_VALUE(clv_constrain(NULL, x, &layout));
    NO_VALUE(clv_einsum(NULL, "ab,bc->ac", x, x));
    NO_VALUE(clv_einsum_accumulate(NULL, "ab,bc->ac", x, x, x, CLV_F32));
    NO_VALUE(clv_unary(NULL, CLV_EXP, x));
    NO_VALUE(clv_binary(NULL, (clv_binary_kind)0, x, x));
    NO_VALUE(clv_add(NULL, x, x));
    NO_VALUE(clv_sub(NULL, x, x));
    NO_VALUE(clv_mul(NULL, x, x));
    NO_VALUE(clv_div(NULL, x, x));
    NO_VALUE(clv_where(NULL, x, x, x));
    NO_VALUE(clv_scale(NULL, x, 2));
    NO_VALUE(clv_cast(NULL, x, CLV_F64));
    NO_VALUE(clv_fill(NULL, CLV_F32, 2, shape, 0));
    NO_VALUE(clv_iota(NULL, 4, CLV_NONE));
    NO_VALUE(clv_equal(NULL, x, x));
    NO_VALUE(clv_bias_gelu(NULL, x, x, CLV_EXP));
    NO_VALUE(clv_gated(NULL, x, CLV_EXP));
    NO_VALUE(clv_experts(NULL, x, x, x, x, x, CLV_SILU));
    NO_VALUE(clv_reduce(NULL, CLV_SUM, x, &(int){0}, 1, false));
    NO_VALUE(clv_reshape(NULL, x, 2, shape));
    NO_VALUE(clv_transpose(NULL, x, (int[]){1, 0}));
    NO_VALUE(clv_slice(NULL, x, shape, shape));
    NO_VALUE(clv_pad(NULL, x, shape, shape));
    NO_VALUE(clv_concat(NULL, (clv_value[]){x, x}, 2, 0));
    NO_VALUE(clv_embedding(NULL, x, x));
    NO_VALUE(clv_rms_norm(NULL, x, x, 1e-5));
    NO_VALUE(clv_layer_norm(NULL, x, x, x, 1e-5));
    NO_VALUE(clv_attention(NULL, x, x, &attention));
    NO_VALUE(clv_rope(NULL, x, CLV_NONE, &rope));
    NO_VALUE(clv_rotate(NULL, x, x, x, false));
    NO_VALUE(clv_cache_update(NULL, x, x, x));
    NO_VALUE(clv_softmax(NULL, x));
    NO_VALUE(clv_cross_entropy(NULL, x, x, -1));
    NO_VALUE(clv_count_labels(NULL, x, -1, CLV_F32));
    NO_VALUE(clv_dropout(NULL, x, 0.5, clv_key_seed(1), x));
    clv_adamw(NULL, x, x, x, x, &(clv_adamw_options){0});
    clv_sgd(NULL, x, x, x, &(clv_sgd_options){0});
    clv_lion(NULL, x, x, x, &(clv_lion_options){0});
    NO_VALUE(clv_global_norm(NULL, &x, 1));
    NO_VALUE(clv_clip_scale(NULL, x, 1));
    NOTHING(clv_graph_axis_rules(NULL, "megatron").n);
    NOTHING(clv_named_layout(NULL, &rules, 2, NULL).rank != 2);
    NOTHING(clv_residual_layout(NULL, &rules, 2).rank != 2);
    NO_VALUE(clv_column_parallel_linear(NULL, x, 4, &rules, &(clv_linear_options){0}));
    NO_VALUE(clv_row_parallel_linear(NULL, x, 4, &rules, &(clv_linear_options){0}));
    NO_VALUE(clv_vocab_parallel_embedding(NULL, x, 4, 4, CLV_F32, &rules, "a", (clv_init){0}));
    NO_VALUE(clv_learned_positions(NULL, x, CLV_NONE, 4, &rules, "a", (clv_init){0}));
    NO_VALUE(clv_vocab_parallel_logits(NULL, x, x, &rules));
    NO_VALUE(clv_vocab_parallel_cross_entropy(NULL, x, x, -1));
    NO_VALUE(clv_parallel_rms_norm(NULL, x, &rules, "a", 1e-5));
    NO_VALUE(clv_parallel_layer_norm(NULL, x, &rules, "a", 1e-5, true));
    NO_VALUE(clv_parallel_mlp(NULL, x, &rules, &(clv_mlp_options){.ffn = 4}));
    NO_VALUE(clv_parallel_experts(NULL, x, &rules, &(clv_experts_options){.experts = 2, .top_k = 1, .ffn = 4}));
    NO_VALUE(clv_parallel_attention(NULL, x, &rules, &(clv_self_attention_options){.heads = 2}));
    NO_VALUE(clv_parallel_latent_attention(NULL, x, &rules, &(clv_latent_attention_options){.heads = 2}));
    NO_VALUE(clv_transformer_block(NULL, x, &rules, &block));
}

static void test_rules(void **state)
{
    static const clv_logical_axis names[2] = {0};
    clv_axis_rules out;
    clv_layout at;

    REFUSED(clv_axis_rules_preset(NULL, "dp", &mesh, &err));
    REFUSED(clv_axis_rules_preset(&out, "dp", NULL, &err));
    REFUSED(clv_axis_rules_parse(NULL, "{}", 2, &mesh, "here", &err));
    REFUSED(clv_axis_rules_parse(&out, NULL, 2, &mesh, "here", &err));
    REFUSED(clv_axis_rules_parse(&out, "{}", 2, NULL, "here", &err));
    REFUSED(clv_axis_rules_parse(&out, "{}", 2, &mesh, NULL, &err));
    REFUSED(clv_axis_rules_read(NULL, "x", &mesh, &err));
    REFUSED(clv_axis_rules_read(&out, NULL, &mesh, &err));
    REFUSED(clv_axis_rules_read(&out, "x", NULL, &err));
    NOTHING(clv_axis_rules_without(NULL, CLV_UNNAMED).n);
    out = rules;
    REFUSED(clv_axis_rules_add(NULL, "a", "", &mesh, &err));
    REFUSED(clv_axis_rules_add(&out, NULL, "", &mesh, &err));
    REFUSED(clv_axis_rules_add(&out, "a", "", NULL, &err));
    REFUSED(clv_axis_rules_layout(NULL, &rules, &mesh, 2, names, &err));
    REFUSED(clv_axis_rules_layout(&at, &rules, NULL, 2, names, &err));
    REFUSED(clv_axis_rules_layout(&at, &rules, &mesh, 2, NULL, &err));
    REFUSED(clv_axis_rules_optimizer_layout(NULL, &rules, &mesh, &layout, shape, &err));
    REFUSED(clv_axis_rules_optimizer_layout(&at, &rules, NULL, &layout, shape, &err));
    REFUSED(clv_axis_rules_optimizer_layout(&at, &rules, &mesh, NULL, shape, &err));
    REFUSED(clv_axis_rules_optimizer_layout(&at, &rules, &mesh, &layout, NULL, &err));
}

static clv_program *compiled(void)
{
    clv_program *program;

    clv_output(graph, "y", clv_scale(graph, x, 2), NULL);
    assert_int_equal(clv_compile(&program, graph, NULL, NULL), CLV_OK);
    return program;
}

static void test_programs(void **state)
{
    clv_program *program = compiled(), *out;
    clv_instruction_info info = {.size = sizeof info};
    clv_prediction prediction = {.size = sizeof prediction};
    char text[8] = "x";

    REFUSED(clv_compile(NULL, graph, NULL, &err));
    REFUSED(clv_compile(&out, NULL, NULL, &err));
    clv_plan_suggestions *suggestions = NULL;
    REFUSED(clv_plan_find_suggestions(NULL, &(clv_plan_options){.block = CLV_PLAN_BLOCK_FFN}, &err));
    REFUSED(clv_plan_find_suggestions(&suggestions, NULL, &err));
    REFUSED(clv_plan_suggestion_at(NULL, 0, &(clv_plan_suggestion){0}, &err));
    clv_mesh order;
    double seconds;
    clv_found_rules found = {.size = sizeof found};
    REFUSED(clv_plan_find_rules(NULL, &(clv_plan_options){.block = CLV_PLAN_BLOCK_FFN}, 0, &err));
    REFUSED(clv_plan_find_rules(&found, NULL, 0, &err));
    REFUSED(clv_plan_find_axis_order(NULL, &seconds, &(clv_plan_options){.block = CLV_PLAN_BLOCK_FFN}, &err));
    REFUSED(clv_plan_find_axis_order(&order, NULL, &(clv_plan_options){.block = CLV_PLAN_BLOCK_FFN}, &err));
    REFUSED(clv_plan_find_axis_order(&order, &seconds, NULL, &err));
    assert_int_equal(clv_plan_suggestion_count(NULL), 0);
    clv_plan_suggestions_free(NULL);
    REFUSED(clv_plan_block_parse(NULL, "gpt", &err));
    REFUSED(clv_plan_block_parse(&(clv_plan_block){0}, NULL, &err));
    REFUSED(clv_plan_compile(NULL, &(clv_plan_options){.block = CLV_PLAN_BLOCK_FFN}, &err));
    REFUSED(clv_plan_compile(&out, NULL, &err));
    REFUSED(clv_plan_compile(&out, &(clv_plan_options){0}, &err));
    clv_program_free(NULL);
    NOTHING(clv_program_collective_count(NULL));
    clv_collective collective = {0};
    clv_strategy_candidate considered = {0};
    clv_memory memory = {0};
    clv_program_tensor tensor = {0};
    REFUSED(clv_program_collective(NULL, 0, &collective, &err));
    REFUSED(clv_program_collective(program, 9, &collective, &err));
    REFUSED(clv_program_collective(program, -1, &collective, &err));
    REFUSED(clv_program_collective(program, 0, NULL, &err));
    NOTHING(clv_program_candidate_count(NULL));
    REFUSED(clv_program_candidate(NULL, 0, &considered, &err));
    REFUSED(clv_program_candidate(program, 9, &considered, &err));
    REFUSED(clv_program_candidate(program, 0, NULL, &err));
    clv_partition_decision assigned = {0};
    NOTHING(clv_program_decision_count(NULL));
    REFUSED(clv_program_decision(NULL, 0, &assigned, &err));
    REFUSED(clv_program_decision(program, 9, &assigned, &err));
    REFUSED(clv_program_decision(program, -1, &assigned, &err));
    REFUSED(clv_program_decision(program, 0, NULL, &err));
    assert_string_equal(clv_candidate_verdict_name((clv_candidate_verdict)-1), "unknown");
    NOTHING(clv_program_region_bytes(NULL));
    REFUSED(clv_program_memory(NULL, &memory, &err));
    REFUSED(clv_program_memory(program, NULL, &err));
    memory.size = 1;
    REFUSED(clv_program_memory(program, &memory, &err));
    REFUSED(clv_program_tensor_at(NULL, 0, &tensor, &err));
    REFUSED(clv_program_tensor_at(program, -1, &tensor, &err));
    REFUSED(clv_program_tensor_at(program, 0, NULL, &err));
    NOTHING(clv_program_instruction_count(NULL));
    NOTHING(clv_program_mesh(NULL));
    REFUSED(clv_program_instruction(NULL, 0, &info, &err));
    REFUSED(clv_program_instruction(program, 0, NULL, &err));
    REFUSED(clv_program_instruction(program, -1, &info, &err));
    REFUSED(clv_program_instruction(program, 99, &info, &err));
    REFUSED(clv_program_predict(NULL, NULL, &prediction, &err));
    REFUSED(clv_program_predict(program, NULL, NULL, &err));
    NOTHING(clv_program_predict_instruction(NULL, NULL, 0));
    NOTHING(clv_program_predict_instruction(program, NULL, 99));
    NOTHING(clv_program_print(text, sizeof text, NULL));
    NOTHING(clv_program_print_dot(text, sizeof text, NULL));
    assert_string_equal(text, "");
    NOTHING(clv_program_print(NULL, 0, program) == 0);
    clv_program_free(program);
}

static void test_sessions(void **state)
{
    clv_program *program = compiled();
    clv_session *session, *out;
    float in[16] = {0};
    const clv_input_binding good = {"x", in}, nameless = {NULL, in}, empty = {"x", NULL};
    const clv_output_binding no_output = {"y", NULL};

    assert_true(clv_generator_session(NULL) == NULL);
    REFUSED(clv_session_new(NULL, &mesh, NULL, &err));
    REFUSED(clv_session_new(&out, NULL, NULL, &err));
    REFUSED(clv_session_new(&out, &mesh, &(clv_session_options){.timeout_ms = -1}, &err));
    assert_int_equal(clv_session_new(&session, &mesh, NULL, NULL), CLV_OK);
    clv_session_free(NULL);
    REFUSED(clv_session_load(NULL, program, &err));
    REFUSED(clv_session_load(session, NULL, &err));
    clv_session_unload(NULL, program);
    clv_session_unload(session, NULL);
    REFUSED(clv_session_run(NULL, program, &good, 1, NULL, 0, &err));
    REFUSED(clv_session_run(session, NULL, &good, 1, NULL, 0, &err));
    REFUSED(clv_session_run(session, program, NULL, 1, NULL, 0, &err));
    REFUSED(clv_session_run(session, program, &good, 1, NULL, 1, &err));
    REFUSED(clv_session_run(session, program, &good, -1, NULL, 0, &err));
    REFUSED(clv_session_run(session, program, &nameless, 1, NULL, 0, &err));
    REFUSED(clv_session_run(session, program, &empty, 1, NULL, 0, &err));
    REFUSED(clv_session_run(session, program, &good, 1, &no_output, 1, &err));
    clv_state_info state_info = {0};
    REFUSED(clv_session_state(NULL, 0, &state_info, &err));
    REFUSED(clv_session_state(session, -1, &state_info, &err));
    REFUSED(clv_session_state(session, 0, NULL, &err));
    REFUSED(clv_session_read(NULL, "x", NULL, in, &err));
    REFUSED(clv_session_read(session, NULL, NULL, in, &err));
    REFUSED(clv_session_read(session, "x", NULL, NULL, &err));
    REFUSED(clv_session_write(NULL, "x", NULL, in, &err));
    REFUSED(clv_session_write(session, NULL, NULL, in, &err));
    REFUSED(clv_session_write(session, "x", NULL, NULL, &err));
    NOTHING(clv_session_instruction_seconds(NULL, program, 0) != 0);
    NOTHING(clv_session_instruction_seconds(session, NULL, 0) != 0);
    NOTHING(clv_session_rank_bytes(NULL));
    REFUSED(clv_session_take_stats(NULL, NULL, &err));
    assert_int_equal(clv_session_run(session, program, &good, 1, NULL, 0, NULL),
                     CLV_OK); /* none of this was a failed run */
    clv_session_free(session);
    clv_program_free(program);
}

/* Threads do not survive fork: a child gets an error at once, and can free what it has. */
static void test_session_after_fork(void **state)
{
    clv_program *program = compiled();
    clv_session *session;
    float in[16] = {0};
    const clv_input_binding good = {"x", in};
    int status;

    assert_int_equal(clv_session_new(&session, &mesh, NULL, NULL), CLV_OK);
    assert_int_equal(clv_session_run(session, program, &good, 1, NULL, 0, NULL), CLV_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        err = (clv_error){0};
        clv_status run = clv_session_run(session, program, &good, 1, NULL, 0, &err);
        clv_session_free(session);
        _exit(run == CLV_EINVAL && strstr(err.message, "fork") != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(clv_session_run(session, program, &good, 1, NULL, 0, NULL), CLV_OK);
    clv_session_free(session);
    clv_program_free(program);
}

/* ---- nothing at all ---- */

/* A function that parses the name of an enum's value. */
#define REFUSES_NAMES(parse, type)                                                                                     \
    do {                                                                                                               \
        type parsed = (type)7;                                                                                         \
        REFUSED(parse(NULL, "none", &err));                                                                            \
        REFUSED(parse(&parsed, NULL, &err));                                                                           \
        NOTHING(parse(&parsed, "no such", NULL) == CLV_OK || parsed != (type)7);                                       \
    } while (0)

static void test_names_of_nothing(void **state)
{
    (void)state;
    REFUSES_NAMES(clv_dtype_parse, clv_dtype);
    REFUSES_NAMES(clv_comm_dtype_parse, clv_comm_dtype);
    REFUSES_NAMES(clv_quant_parse, clv_quant);
    REFUSES_NAMES(clv_plan_block_parse, clv_plan_block);
    REFUSES_NAMES(clv_recompute_parse, clv_recompute);
    REFUSES_NAMES(clv_optimizer_parse, clv_optimizer);
    REFUSES_NAMES(clv_lr_schedule_shape_parse, clv_lr_schedule_shape);
    REFUSES_NAMES(clv_on_nan_parse, clv_on_nan);
    NOTHING(clv_type_equal(NULL, &(clv_type){0}));
    NOTHING(clv_type_equal(&(clv_type){0}, NULL));
    REFUSED(clv_graph_parse(&graph, NULL, &err));
    assert_int_equal(clv_print_bytes(NULL, 0, 512), 5);
    assert_int_equal(clv_print_bytes_exactly(NULL, 0, 512), 5);
    assert_int_equal(clv_print_seconds(NULL, 0, 3.87), 6);
    assert_int_equal(clv_print_count(NULL, 0, 633e6), 5);
}

static void test_files_of_nothing(void **state)
{
    clv_flight *flight;
    clv_flight_report *dumps;
    clv_trace_report *trace;
    clv_token_writer *writer;
    const char *path;
    char text[8] = "x";
    (void)state;
    NOTHING(clv_checkpoint_rank_file(text, sizeof text, NULL, NULL, 0));
    NOTHING(clv_data_is_text(NULL));
    REFUSED(clv_token_writer_create(NULL, "x", &(clv_token_writer_options){.vocab = 2}, &err));
    REFUSED(clv_token_writer_create(&writer, "x", NULL, &err));
    REFUSED(clv_flight_new(NULL, &(clv_flight_options){.path = "x"}, &err));
    REFUSED(clv_flight_new(&flight, &(clv_flight_options){0}, &err));
    clv_flight_free(NULL);
    REFUSED(clv_flight_last_path(&path, NULL, &err));
    REFUSED(clv_flight_write(NULL, "x", &err));
    REFUSED(clv_flight_read(NULL, (const char *[]){"x"}, 1, &err));
    REFUSED(clv_flight_read(&dumps, NULL, 1, &err));
    REFUSED(clv_flight_report_rank(NULL, 0, &(clv_flight_rank){0}, &err));
    REFUSED(clv_flight_report_finding(NULL, 0, &(clv_flight_finding){0}, &err));
    NOTHING(clv_flight_report_rank_count(NULL));
    clv_flight_report_free(NULL);
    REFUSED(clv_trace_begin(NULL, &err));
    REFUSED(clv_trace_step(NULL, 0, &err));
    REFUSED(clv_trace_end(NULL, NULL, &err));
    REFUSED(clv_trace_read(NULL, "x", &err));
    REFUSED(clv_trace_read(&trace, NULL, &err));
    REFUSED(clv_trace_report_get_info(NULL, &(clv_trace_info){0}, &err));
    REFUSED(clv_trace_report_part(NULL, 0, &(clv_trace_part){0}, &err));
    REFUSED(clv_trace_report_op_kind(NULL, 0, &(clv_trace_op_kind){0}, &err));
    clv_trace_report_free(NULL);
}

static void test_models_of_nothing(void **state)
{
    const clv_model_graph_options how = {.batch = 1, .seq = 4};
    int64_t most;
    clv_quant quant;
    (void)state;
    NOTHING(clv_model_folder(NULL));
    NOTHING(clv_model_mesh(NULL));
    NOTHING(clv_model_rules(NULL));
    NOTHING(clv_model_dtype(NULL) != CLV_F32);
    NOTHING(clv_model_quant(NULL) != CLV_QUANT_NONE);
    NOTHING(clv_model_weights_memory_bytes(NULL));
    NOTHING(clv_model_bytes_read(NULL));
    NOTHING(clv_model_warning(NULL, 0));
    REFUSED(clv_model_verify_across_processes(NULL, &err));
    REFUSED(clv_model_checkpoint_quant(&quant, NULL, &err));
    REFUSED(clv_model_generation_config(NULL, &(clv_generation_config){0}, &err));
    REFUSED(clv_model_save_adapters(NULL, NULL, "x", &err));
    FAILS_GRAPH(clv_model_forward(graph, NULL, &how, NULL));
    FAILS_GRAPH(clv_model_inference(graph, NULL, &how));
    FAILS_GRAPH(clv_model_train_step(graph, NULL, &how, NULL));
    NO_VALUE(clv_model_forward(NULL, NULL, &how, NULL));
    clv_model_inference(NULL, NULL, &how);
    clv_model_train_step(NULL, NULL, &how, NULL);
    REFUSED(clv_forwarder_find_nonfinite(NULL, NULL, NULL, &err));
    NOTHING(clv_generation_finish_reason(NULL, 0) != CLV_FINISH_CANCELLED);
    NOTHING(clv_generation_sampled_tokens(NULL, 0));
    NOTHING(clv_generation_prompt_tokens(NULL, 0));
    NOTHING(clv_generation_text(NULL, 0, NULL));
    NOTHING(clv_generation_seconds(NULL).prompt > 0);
    NOTHING(clv_mutation_scores_count(NULL));
    NOTHING(clv_mutation_scores_name(NULL, 0));
    NOTHING(clv_mutation_scores_score(NULL, 0) != 0);
    REFUSED(clv_trainer_max_over_processes(NULL, 1, &most, &err));
    REFUSED(clv_trainer_set_metadata(NULL, "a", "b", &err));
    NOTHING(clv_trainer_get_metadata(NULL, "a"));
    NOTHING(clv_trainer_nonfinite(NULL));
    NOTHING(clv_trainer_program(NULL));
    NOTHING(clv_trainer_session(NULL));
    NOTHING(clv_trainer_steps_done(NULL) != -1);
    NOTHING(clv_trainer_steps_skipped(NULL) != -1);
    NOTHING(clv_trainer_checkpoint_in_progress(NULL) != -1);
    REFUSED(clv_trainer_checkpoint_poll(NULL, &err));
    REFUSED(clv_trainer_checkpoint_finish(NULL, &err));
    REFUSED(clv_trainer_save_adapters(NULL, "x", &err));
    NOTHING(clv_lr_schedule_rate(NULL, 0) != 0);
}

/* Outside of a function of clv_spmd_run. */
static void test_spmd_of_nothing(void **state)
{
    clv_local_tensor out, in = {0};
    int size;
    (void)state;
    NOTHING(clv_spmd_rank(NULL));
    NOTHING(clv_spmd_mesh(NULL));
    NOTHING(clv_spmd_collective_count(NULL));
    REFUSED(clv_spmd_collective(NULL, 0, &(clv_collective){0}, &err));
    REFUSED(clv_spmd_group(&size, NULL, NULL, "model", &err));
    REFUSED(clv_spmd_zeros(&out, NULL, CLV_F32, 1, shape, "_", &err));
    REFUSED(clv_spmd_state(&out, NULL, "w", &err));
    clv_spmd_free(NULL, NULL);
    REFUSED(clv_spmd_all_reduce(&out, NULL, &in, CLV_REDUCTION_SUM, "model", &err));
    REFUSED(clv_spmd_reduce_scatter(&out, NULL, &in, CLV_REDUCTION_SUM, 0, "model", &err));
    REFUSED(clv_spmd_all_gather(&out, NULL, &in, "model", &err));
    REFUSED(clv_spmd_all_to_all(&out, NULL, &in, 0, "model", &err));
    REFUSED(clv_spmd_permute(&out, NULL, &in, &(clv_spmd_pair){0}, 1, "model", &err));
    REFUSED(clv_spmd_shift(&out, NULL, &in, 1, "model", &err));
    REFUSED(clv_spmd_broadcast(&out, NULL, &in, 0, "model", &err));
    REFUSED(clv_spmd_barrier(NULL, "model", &err));
    REFUSED(clv_session_run_boxes(NULL, NULL, &(clv_run){0}, &err));
    NOTHING(clv_job_process_index(NULL) != -1);
    NOTHING(clv_job_process_count(NULL));
    assert_int_equal(clv_job_leave(NULL, &err), CLV_OK);
}

/* ---- all of them ---- */

/* The text of a folder's files whose names begin and end so, one after another. */
static char *contents(const char *folder, const char *begin, const char *end, int *files)
{
    const char *source = getenv("CLV_SOURCE_DIR");
    char path[1024];
    size_t size = 0, length = strlen(begin);
    char *all = calloc(1, 1);

    *files = 0;
    snprintf(path, sizeof path, "%s/%s", source ? source : ".", folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (strncmp(entry->d_name, begin, length) != 0 || !dot || strcmp(dot, end) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s/%s", source ? source : ".", folder, entry->d_name);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        assert_int_equal(fseek(f, 0, SEEK_END), 0);
        size_t more = (size_t)ftell(f);
        rewind(f);
        all = realloc(all, size + more + 1);
        assert_non_null(all);
        assert_int_equal(fread(all + size, 1, more, f), more);
        fclose(f);
        size += more;
        all[size] = '\0';
        ++*files;
    }
    closedir(dir);
    return all;
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_named(const char *text, const char *name, size_t n)
{
    char word[128];

    snprintf(word, sizeof word, "%.*s", (int)n, name);
    for (; (text = strstr(text, word)) != NULL; text += n)
        if (!is_letter(text[n]))
            return true;
    return false;
}

/* Calls of the functions that are marked so in the headers; returns how many these are. */
static int check_called(const char *declared, const char *mark, const char *calls, int *missing)
{
    int n = 0;
    for (const char *at = declared; (at = strstr(at, mark)) != NULL; n++) {
        const char *end = strchr(at, '('), *name = end;
        assert_non_null(end);
        while (is_letter(name[-1]))
            name--;
        if (!is_named(calls, name, (size_t)(end - name))) {
            print_error("%.*s is not called\n", (int)(end - name), name);
            ++*missing;
        }
        at = end;
    }
    return n;
}

/* Every function of the library is called by some test; most of them, with nothing, here. Of 300 at most the behaviour
 * is promised. */
static void test_every_function_is_called(void **state)
{
    int headers, tests, missing = 0;
    char *declared = contents("include/cleave", "", ".h", &headers), *calls = contents("tests", "test_", ".c", &tests);
    int promised = check_called(declared, "\nCLV_API ", calls, &missing);
    int experimental = check_called(declared, "\nCLV_EXPERIMENTAL ", calls, &missing);
    free(declared);
    free(calls);
    assert_true(headers > 15 && tests > 50);
    assert_true(promised > 200 && promised <= 300 && experimental > 100);
    assert_int_equal(missing, 0);
}

/* ---- statuses that are stated ---- */

enum { MAX_TESTS = 400 };

static char *tests_text[MAX_TESTS];
static int n_tests;

/* The text of each test by itself. */
static void read_tests(void)
{
    const char *source = getenv("CLV_SOURCE_DIR");
    char path[1024];
    int files;
    snprintf(path, sizeof path, "%s/tests", source ? source : ".");
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; n_tests < MAX_TESTS && (entry = readdir(dir)) != NULL;)
        if (strncmp(entry->d_name, "test_", 5) == 0 && strstr(entry->d_name, ".c"))
            tests_text[n_tests++] = contents("tests", entry->d_name, ".c", &files);
    closedir(dir);
}

/* Whether a test that calls the function names the status. */
static bool is_tested(const char *name, size_t n, const char *status)
{
    for (int i = 0; i < n_tests; i++)
        if (is_named(tests_text[i], name, n) &&
            (is_named(tests_text[i], status, strlen(status)) ||
             (strcmp(status, "CLV_EINVAL") == 0 && strstr(tests_text[i], "REFUSED("))))
            return true;
    return false;
}

/* What no test makes happen: a mapped page that is gone (test_cli_mapped_weights does, by the command), a plan that is
 * wrong, a process that fails to write (test_cli_mpi, by the command). */
static const char *const not_made[][2] = {
    {"clv_handle_sigbus", "EIO"}, {"clv_reshard_verify", "ECHECK"}, {"clv_trainer_checkpoint", "EPEER"}};

/* Of the statuses in the comment of each function, but CLV_ENOMEM (test_out_of_memory makes every allocation fail). */
static int check_statuses(const char *declared, const char *mark, int *missing)
{
#define STATUS(code, name, text) #code,
    static const char *const statuses[] = {CLV_STATUS_TABLE(STATUS)};
#undef STATUS
    int n = 0;
    for (const char *at = declared; (at = strstr(at, mark)) != NULL;) {
        const char *end = strchr(at, '('), *name = end, *comment = at;
        assert_non_null(end);
        while (is_letter(name[-1]))
            name--;
        while (comment > declared && strncmp(comment, "/**", 3) != 0)
            comment--;
        char text[8192], function[128];
        snprintf(text, sizeof text, "%.*s", (int)(at - comment), comment);
        snprintf(function, sizeof function, "%.*s", (int)(end - name), name);
        for (size_t i = CLV_OK + 1; i < sizeof statuses / sizeof *statuses; i++) {
            bool is_left_out = i == CLV_ENOMEM || !is_named(text, statuses[i], strlen(statuses[i]));
            for (size_t k = 0; k < sizeof not_made / sizeof *not_made; k++)
                is_left_out |= strcmp(not_made[k][0], function) == 0 && strcmp(not_made[k][1], statuses[i] + 4) == 0;
            n += !is_left_out;
            if (!is_left_out && !is_tested(name, (size_t)(end - name), statuses[i])) {
                print_error("no test that calls %s names %s\n", function, statuses[i]);
                ++*missing;
            }
        }
        at = end;
    }
    return n;
}

static void test_every_status_is_tested(void **state)
{
    int headers, missing = 0;
    char *declared = contents("include/cleave", "", ".h", &headers);
    (void)state;
    read_tests();
    int n =
        check_statuses(declared, "\nCLV_API ", &missing) + check_statuses(declared, "\nCLV_EXPERIMENTAL ", &missing);
    free(declared);
    while (n_tests > 0)
        free(tests_text[--n_tests]);
    assert_int_equal(missing, 0);
    assert_true(n > 250);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define EDGE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
        EDGE(test_statuses_and_dtypes),
        EDGE(test_machines),
        EDGE(test_random_numbers),
        EDGE(test_meshes),
        EDGE(test_layouts),
        EDGE(test_graphs),
        EDGE(test_builders),
        EDGE(test_rules),
        EDGE(test_programs),
        EDGE(test_builders_without_a_graph),
        EDGE(test_sessions),
        EDGE(test_session_after_fork),
        EDGE(test_names_of_nothing),
        EDGE(test_files_of_nothing),
        EDGE(test_models_of_nothing),
        EDGE(test_spmd_of_nothing),
#undef EDGE
        cmocka_unit_test(test_every_function_is_called),
        cmocka_unit_test(test_every_status_is_tested),
    };

    return cmocka_run_group_tests_name("edges", tests, NULL, NULL);
}

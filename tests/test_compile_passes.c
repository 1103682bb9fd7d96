/* test_compile_passes.c - passes of clv_compile by themselves: lowering a table, planning memory. */
#include <stdlib.h>
#include <string.h>

#include "elementwise_op.h"
#include "must.h"
#include "partition/passes/passes.h"
#include "unit_test.h"

static clv_program *empty_program(void)
{
    clv_program *program = calloc(1, sizeof *program);
    program->arena = clv_arena_new();
    return program;
}

/* Megatron's feed-forward part on four ranks: a product by columns, one by rows, and the sum of its addends. */
typedef struct mlp {
    clv_graph *graph;
    clv_layout whole, columns, rows, addends;
    clv_value x, up, down, y;
} mlp;

static mlp make_mlp(void)
{
    mlp m = {.graph = must_graph("model=4"), .whole = clv_layout_replicated(2)};
    clv_init normal = {CLV_INIT_NORMAL, 1};
    m.columns = clv_graph_layout(m.graph, 2, "_,model");
    m.rows = clv_graph_layout(m.graph, 2, "model,_");
    m.addends = clv_graph_layout(m.graph, 2, "_,_ + sum{model}");
    m.x = clv_input(m.graph, "x", CLV_F32, 2, (int64_t[]){64, 256}, &m.whole);
    m.up = clv_state(m.graph, "up", CLV_F32, 2, (int64_t[]){256, 1024}, &m.columns, normal);
    m.down = clv_state(m.graph, "down", CLV_F32, 2, (int64_t[]){1024, 256}, &m.rows, normal);
    clv_value h = clv_unary(m.graph, CLV_TANH, clv_einsum(m.graph, "bm,mh->bh", m.x, m.up));
    m.y = clv_einsum(m.graph, "bh,hm->bm", h, m.down);
    clv_output(m.graph, "y", m.y, &m.whole);
    return m;
}

/* ---- lower: of tables that no partitioner made ---- */

static int add_sharded(clv_sharding_table *table, clv_value value, const clv_layout *layout, bool is_graph_input)
{
    clv_error err = {0};
    clv_sharded_value place = {.value = value.id, .layout = layout, .is_graph_input = is_graph_input, .alias_of = -1};
    int out;
    must(clv_sharding_table_add_value(&out, table, &place, &err), &err);
    return out;
}

static void add_op(clv_sharding_table *table, int op, const clv_strategy *strategy, int left, int right, int out)
{
    clv_error err = {0};
    clv_sharding_row row = {.op = &table->graph->ops[op], .strategy = strategy, .in = {left, right}, .out = {out}};
    must(clv_sharding_table_add_row(table, &row, &err), &err);
}

/* The table of the MLP: what it points to lives here. */
typedef struct hand_made {
    mlp m;
    clv_sharding_table table;
    clv_strategy by_columns, on_columns, by_rows;
    clv_reshard_step sum;
} hand_made;

enum { X, UP, DOWN, H, ACTIVATED, ADDENDS, Y };

static void make_by_hand(hand_made *made)
{
    clv_error err = {0};
    made->m = make_mlp();
    mlp *m = &made->m;
    clv_subaxis model = clv_mesh_whole_axis(&m->graph->mesh, 0);
    made->by_columns = (clv_strategy){
        .n_subaxes = 1, .subaxis = {model}, .choice = {1}, .in = {m->whole, m->columns}, .out = {m->columns}};
    made->on_columns =
        (clv_strategy){.n_subaxes = 1, .subaxis = {model}, .choice = {1}, .in = {m->columns}, .out = {m->columns}};
    made->by_rows = (clv_strategy){
        .n_subaxes = 1, .subaxis = {model}, .choice = {2}, .in = {m->columns, m->rows}, .out = {m->addends}};
    made->sum = (clv_reshard_step){.kind = CLV_STEP_ALL_REDUCE,
                                   .from = m->addends,
                                   .to = m->whole,
                                   .n_axes = 1,
                                   .axes = {model},
                                   .bytes = 2 * 64 * 256 * 4 * 3 / 4};
    clv_sharding_table *table = &made->table;
    must(clv_sharding_table_init(table, clv_arena_new(), m->graph, &err), &err);
    add_sharded(table, m->x, &m->whole, true);
    add_sharded(table, m->up, &m->columns, true);
    add_sharded(table, m->down, &m->rows, true);
    for (int o = 0; o < 3; o++)
        add_sharded(table, (clv_value){m->graph->ops[o].out[0]}, o < 2 ? &m->columns : &m->addends, false);
    add_sharded(table, m->y, &m->whole, false);
    add_op(table, 0, &made->by_columns, X, UP, H);
    add_op(table, 1, &made->on_columns, H, 0, ACTIVATED);
    add_op(table, 2, &made->by_rows, ACTIVATED, DOWN, ADDENDS);
    clv_sharding_row sum = {
        .step = &made->sum,
        .value = m->y.id,
        .from = ADDENDS,
        .to = Y,
        .explanation = {.need = CLV_NEEDED_BY_OUTPUT, .by = "y", .text = "output y is stated as whole on every rank"}};
    must(clv_sharding_table_add_row(table, &sum, &err), &err);
    table->output[0] = Y;
}

static void free_hand_made(hand_made *made)
{
    clv_arena_free(made->table.arena);
    clv_graph_free(made->m.graph);
}

static char *text_of(const clv_program *program)
{
    size_t size = clv_program_print(NULL, 0, program) + 1;
    char *text = malloc(size);
    clv_program_print(text, size, program);
    return text;
}

/* The same choices give the same program, whoever made them. */
static void lowers_a_hand_made_table_as_the_compiler_its_own(void **state)
{
    clv_error err = {0};
    hand_made made;
    clv_program *compiled, *program = empty_program();
    make_by_hand(&made);
    must(clv_compile(&compiled, made.m.graph, NULL, &err), &err);
    must(clv_lower_to_program(program, &made.table, &err), &err);
    must(clv_program_plan_memory(program, &err), &err);
    must(clv_program_verify(program, &err), &err);
    free_hand_made(&made); /* the program keeps nothing of it */
    char *text = text_of(program), *expected = text_of(compiled);
    assert_non_null(strstr(expected, "all_reduce"));
    assert_string_equal(text, expected);
    assert_int_equal(clv_program_region_bytes(program), clv_program_region_bytes(compiled));
    clv_collective theirs = {.size = sizeof theirs}, ours = {.size = sizeof ours};
    assert_int_equal(clv_program_collective_count(program), 1);
    must(clv_program_collective(program, 0, &ours, &err), &err);
    must(clv_program_collective(compiled, 0, &theirs, &err), &err);
    assert_string_equal(ours.reason, theirs.reason);
    assert_string_equal(ours.tensor, theirs.tensor);
    assert_string_equal(ours.op, theirs.op);
    assert_true(ours.bytes == theirs.bytes);
    free(text);
    free(expected);
    clv_program_free(program);
    clv_program_free(compiled);
}

/* A table that choose_strategies would not make: y = tanh(x), with x gathered before, twice, for no reason. */
static void lowers_what_assign_would_not_choose(void **state)
{
    clv_error err = {0};
    clv_sharding_table table;
    clv_program *program = empty_program();
    clv_graph *graph = must_graph("a=2");
    clv_layout cut = clv_graph_layout(graph, 1, "a"), whole = clv_layout_replicated(1);
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){64}, &cut), y = clv_unary(graph, CLV_TANH, x);
    clv_output(graph, "y", y, &whole);
    must(clv_sharding_table_init(&table, clv_arena_new(), graph, &err), &err);
    clv_strategy strategy = {.in = {whole}, .out = {whole}};
    clv_reshard_step gather = {.kind = CLV_STEP_ALL_GATHER,
                               .from = cut,
                               .to = whole,
                               .n_axes = 1,
                               .axes = {clv_mesh_whole_axis(&graph->mesh, 0)},
                               .bytes = 128};
    int given = add_sharded(&table, x, &cut, true), first = add_sharded(&table, x, &whole, false),
        again = add_sharded(&table, x, &whole, false), made = add_sharded(&table, y, &whole, false);
    clv_sharding_row step = {
        .step = &gather,
        .value = x.id,
        .from = given,
        .explanation = {.need = CLV_NEEDED_BY_OP, .by = "map", .text = "as I like it", .implicit = true}};
    step.to = first;
    must(clv_sharding_table_add_row(&table, &step, &err), &err);
    step.to = again;
    must(clv_sharding_table_add_row(&table, &step, &err), &err);
    add_op(&table, 0, &strategy, again, 0, made);
    table.output[0] = made;
    must(clv_lower_to_program(program, &table, &err), &err);
    assert_int_equal(program->n_buffers, 4);
    assert_int_equal(program->n_instructions, 3);
    assert_int_equal(program->n_steps, 2);
    assert_int_equal(program->n_groups, 1);
    assert_int_equal(program->instructions[2].in[0], again);
    assert_ptr_not_equal(program->instructions[2].op, &graph->ops[0]); /* it outlives the graph */
    assert_string_equal(program->instructions[0].reason, "operand");
    assert_string_equal(program->instructions[0].tensor, "x");
    assert_true(program->instructions[0].implicit);
    must(clv_program_plan_memory(program, &err), &err);
    must(clv_program_verify(program, &err), &err);
    clv_program_free(program);
    clv_arena_free(table.arena);
    clv_graph_free(graph);
}

/* Each spoils the table in one way. */
typedef void spoiler(hand_made *made);

static void reads_too_early(hand_made *made)
{
    clv_sharding_row first = made->table.rows[0];
    made->table.rows[0] = made->table.rows[1];
    made->table.rows[1] = first;
}
static void sees_what_is_not_made(hand_made *made)
{
    clv_error err = {0};
    clv_sharded_value seen = made->table.sharded[H];
    int place;
    seen.alias_of = H;
    must(clv_sharding_table_add_value(&place, &made->table, &seen, &err), &err);
    made->table.rows[0].in[0] = place;
}
static void reads_nowhere(hand_made *made)
{
    made->table.rows[1].in[0] = made->table.n_sharded;
}
static void reads_below_nowhere(hand_made *made)
{
    made->table.rows[1].in[0] = -2;
}
static void reads_another_value(hand_made *made)
{
    made->table.rows[2].in[0] = H; /* as it was before tanh */
}
static void reads_another_layout(hand_made *made)
{
    made->table.sharded[UP].layout = &made->m.rows;
}
static void makes_it_twice(hand_made *made)
{
    made->table.rows[1].out[0] = H;
}
static void is_split_by_nothing_known(hand_made *made)
{
    made->by_columns.choice[0] = 99;
}
static void is_split_over_no_axis(hand_made *made)
{
    made->by_columns.subaxis[0].axis = 7;
}
static void forgets_the_addends(hand_made *made)
{
    made->by_rows.out[0] = made->m.whole;
    made->table.sharded[ADDENDS].layout = &made->m.whole;
    made->sum.from = made->m.whole;
}
static void has_no_strategy(hand_made *made)
{
    made->table.rows[0].strategy = NULL;
}
static void is_of_another_graph(hand_made *made)
{
    static clv_op op;
    op = *made->table.rows[0].op;
    made->table.rows[0].op = &op;
}
static void tells_nothing(hand_made *made)
{
    made->table.keeps_decisions = true;
}
static void sums_without_axes(hand_made *made)
{
    made->sum.n_axes = 0;
}
static void gathers_addends(hand_made *made)
{
    made->sum.kind = CLV_STEP_ALL_GATHER;
}
static void has_no_cause(hand_made *made)
{
    made->table.rows[3].explanation.text = NULL;
}
static void is_no_step(hand_made *made)
{
    made->table.rows[3].step = NULL;
}
static void returns_addends(hand_made *made)
{
    made->table.output[0] = ADDENDS;
}
static void returns_nothing(hand_made *made)
{
    made->table.n_rows = 0;
}
static void names_no_value(hand_made *made)
{
    made->table.sharded[H].value = made->m.graph->n_values;
}
static void has_no_layout(hand_made *made)
{
    made->table.sharded[H].layout = NULL;
}
static void has_another_rank(hand_made *made)
{
    static clv_layout scalar;
    scalar = clv_layout_replicated(0);
    made->table.sharded[H].layout = &scalar;
}
static void is_given_a_result(hand_made *made)
{
    made->table.sharded[H].is_graph_input = true;
}
static void sees_itself(hand_made *made)
{
    made->table.sharded[Y].alias_of = Y;
}
static void sees_another_value(hand_made *made)
{
    made->table.sharded[Y].alias_of = X;
}
static void updates_what_is_not_assigned(hand_made *made)
{
    made->table.update[made->m.up.id] = (clv_state_update){.state = UP, .becomes = UP};
}

/* A table that does not fit its graph is refused, with the row. */
static void refuses_bad_tables(void **state)
{
    static const struct {
        spoiler *spoil;
        const char *message;
    } cases[] = {
        {reads_too_early, "row 0 (map) reads a sharded value before it is made"},
        {sees_what_is_not_made, "row 0 (dot_general) reads a sharded value before it is made"},
        {reads_nowhere, "row 1 (map) reads a sharded value that does not exist"},
        {reads_below_nowhere, "row 1 (map) reads a sharded value that does not exist"},
        {reads_another_value, "row 2 (dot_general) reads another value of the graph"},
        {reads_another_layout, "row 0 (dot_general) reads it in another layout than stated"},
        {makes_it_twice, "row 1 (map) makes a sharded value that exists already"},
        {is_split_by_nothing_known, "row 0 (dot_general) has a strategy with a sub-axis or factor that does not exist"},
        {is_split_over_no_axis, "row 0 (dot_general) has a strategy with a sub-axis or factor that does not exist"},
        {forgets_the_addends, "row 2 (dot_general) has layouts that do not follow from its rule"},
        {has_no_strategy, "row 0 needs an op of the graph that has a rule, and a strategy"},
        {is_of_another_graph, "row 0 needs an op of the graph that has a rule, and a strategy"},
        {tells_nothing, "row 0 (dot_general) has no decision, which the table keeps"},
        {sums_without_axes, "row 3 (y) has a step whose kind or axes do not fit its layouts"},
        {gathers_addends, "row 3 (y) has a step whose kind or axes do not fit its layouts"},
        {has_no_cause, "row 3 (y) needs an explanation of its step"},
        {is_no_step, "row 3 (y) needs an op, or a step of a value"},
        {returns_addends, "output y is partial, or not in its stated layout"},
        {returns_nothing, "output y is partial, or not in its stated layout"},
        {names_no_value, "%3 has no value"},
        {has_no_layout, "%3 has no value or no layout"},
        {has_another_rank, "%3: a layout of 0 dimensions for dot_general, which has 2"},
        {is_given_a_result, "%3 is no input or state, or partial"},
        {sees_itself, "%6 is no alias of %6"},
        {sees_another_value, "%6 is no alias of %0"},
        {updates_what_is_not_assigned, "the new value of up is partial, or not in its layout"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_error err = {0};
        hand_made made;
        clv_program *program = empty_program();
        make_by_hand(&made);
        cases[i].spoil(&made);
        if (clv_lower_to_program(program, &made.table, &err) != CLV_EINVAL || !strstr(err.message, cases[i].message))
            fail_msg("case %zu: '%s', not '%s'", i, err.message, cases[i].message);
        assert_int_equal(program->n_buffers + program->n_instructions, 0);
        clv_program_free(program);
        free_hand_made(&made);
    }
}

/* ---- instructions of a table ---- */

/* Every row is told, and costs what the default machine takes for its instruction; copies that lowering adds for state
 * are no decisions. */
static void tells_what_was_decided(void **state)
{
    static const struct {
        const char *op, *kind, *makes, *split, *layouts, *why;
        double bytes;
    } rows[] = {
        {"dot_general", "dot_general", "result", "h over model", "{_,_}, {_,model} -> {_,model}",
         "up is stated as split by dimension 1 over model", 0},
        {"map", "map", "result", "h over model", "{_,model} -> {_,model}",
         "up is stated as split by dimension 1 over model", 0},
        {"dot_general", "dot_general", "result", "h over model", "{_,model}, {model,_} -> {_,_ + sum{model}}",
         "up is stated as split by dimension 1 over model", 0},
        {"y", "all_reduce", "dot_general", "over model", "{_,_ + sum{model}} -> {_,_}",
         "output y is stated as whole on every rank", 98304},
    };
    enum { N = sizeof rows / sizeof *rows };
    clv_error err = {0};
    clv_program *told, *silent;
    mlp m = make_mlp();
    must(clv_compile(&told, m.graph,
                     &(clv_compile_options){.size = sizeof(clv_compile_options), .keep_decisions = true}, &err),
         &err);
    must(clv_compile(&silent, m.graph, NULL, &err), &err);
    assert_int_equal(clv_program_decision_count(silent), 0);
    assert_int_equal(clv_program_decision_count(told), N);
    for (int i = 0; i < N; i++) {
        clv_partition_decision row = {.size = sizeof row};
        must(clv_program_decision(told, i, &row, &err), &err);
        assert_int_equal(row.instruction, i);
        assert_string_equal(row.op, rows[i].op);
        assert_string_equal(row.kind, rows[i].kind);
        assert_string_equal(row.purpose, rows[i].makes);
        assert_string_equal(row.split, rows[i].split);
        assert_string_equal(row.layouts, rows[i].layouts);
        assert_string_equal(row.why, rows[i].why);
        assert_true(row.bytes == rows[i].bytes);
        double takes = clv_program_predict_instruction(told, NULL, i);
        assert_true(row.seconds > 0 && row.seconds >= takes * (1 - 1e-9) && row.seconds <= takes * (1 + 1e-9));
    }
    clv_partition_decision by_rows = {.size = sizeof by_rows};
    must(clv_program_decision(told, 2, &by_rows, &err), &err);
    assert_true(by_rows.strategy_bytes == 98304); /* the sum of its addends is to come */
    assert_true(by_rows.strategy_seconds > by_rows.seconds);
    clv_program_free(told);
    clv_program_free(silent);
    clv_graph_free(m.graph);
}

/* ---- memory, of what lower made: found by going through the program, not by lifetimes ---- */

/* What lies in memory, in units of which all buffers are whole numbers: the buffer that was written there. */
typedef struct contents {
    const clv_program *program;
    int *region;
    int state[64]; /* of state, by its buffer */
} contents;

static int root_of(const contents *c, int b)
{
    return clv_program_owning_buffer(c->program, b);
}

static int *lies_at(contents *c, int b, int64_t *units)
{
    const clv_buffer *root = &c->program->buffers[root_of(c, b)];
    *units = (c->program->buffers[b].bytes + CLV_BUFFER_ALIGN - 1) / CLV_BUFFER_ALIGN;
    if (root->kind != CLV_BUFFER_STATE)
        return &c->region[root->offset / CLV_BUFFER_ALIGN];
    *units = 1;
    return &c->state[root_of(c, b)];
}

/* The buffer that is written when this one is, or itself: some only see another. */
static int written_as(const contents *c, int b)
{
    for (int i = 0; i < c->program->n_instructions; i++)
        for (int o = 0; o < c->program->instructions[i].n_out; o++)
            if (c->program->instructions[i].out[o] == b)
                return b;
    return c->program->buffers[b].shares_with >= 0 ? written_as(c, c->program->buffers[b].shares_with) : b;
}

static void write_there(contents *c, int b)
{
    int64_t units;
    int *at = lies_at(c, b, &units);
    for (int64_t u = 0; u < units; u++)
        at[u] = b;
}

static void expect_there(contents *c, int b, const char *reader)
{
    int64_t units;
    const int *at = lies_at(c, b, &units);
    for (int64_t u = 0; u < units; u++)
        if (at[u] != written_as(c, b))
            fail_msg("%s reads buffer %d, and finds what was written as %d", reader, b, at[u]);
}

/* A result lies where an operand does only if its op may do that, and nothing else reads the operand there. */
static void expect_apart(const contents *c, const clv_instruction *instruction)
{
    for (int o = 0; o < instruction->n_out; o++) {
        int readers = 0, may = instruction->op ? instruction->op->def->in_place[o] - 1 : -1;
        bool taken = false;
        for (int k = 0; k < instruction->n_in; k++)
            if (instruction->in[k] >= 0 && root_of(c, instruction->in[k]) == root_of(c, instruction->out[o])) {
                readers++;
                taken = taken || k == may;
            }
        if (readers > 1 || (readers == 1 && !taken))
            fail_msg("%s writes where it reads", instruction->name);
    }
}

static void expect_sound_memory(const clv_program *program)
{
    contents c = {.program = program};
    c.region = malloc(((size_t)clv_program_region_bytes(program) / CLV_BUFFER_ALIGN + 1) * sizeof *c.region);
    assert_true(program->n_buffers <= (int)(sizeof c.state / sizeof *c.state));
    for (int b = 0; b < program->n_buffers; b++)
        if (program->buffers[b].name)
            write_there(&c, b);
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++)
            if (instruction->in[k] >= 0)
                expect_there(&c, instruction->in[k], instruction->name);
        expect_apart(&c, instruction);
        for (int o = 0; o < instruction->n_out; o++)
            write_there(&c, instruction->out[o]);
    }
    for (int o = 0; o < program->n_outputs; o++)
        expect_there(&c, program->outputs[o].buffer, program->outputs[o].name);
    free(c.region);
}

/* Compiles a graph, frees it, and verifies the program's memory. */
static clv_program *compile_soundly(clv_graph *graph)
{
    clv_error err = {0};
    clv_program *program;
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    expect_sound_memory(program);
    return program;
}

static int copies_in(const clv_program *program)
{
    int copies = 0;
    for (int i = 0; i < program->n_instructions; i++)
        copies += program->instructions[i].step && program->instructions[i].step->kind == CLV_STEP_SLICE;
    return copies;
}

typedef enum update { ALONE, OF_ITSELF_TWICE, OF_A_PRODUCT, READ_LATER, SEEN_LATER, RETURNED_AS_SEEN, UPDATES } update;

/* State is written in place only where nobody reads the old one later, in whatever layout, nor the op itself in
 * another operand; else a copy is made at the end. */
static void updates_state_in_place_where_it_may(void **state)
{
    static const int copies[UPDATES] = {0, 1, 1, 1, 1, 2};
    for (update how = 0; how < UPDATES; how++) {
        clv_graph *graph = must_graph("a=2");
        clv_layout cut = clv_graph_layout(graph, 2, "a,_"), pairs = clv_graph_layout(graph, 2, "a*2,_"),
                   whole = clv_layout_replicated(2);
        clv_value w = clv_state_with_role(graph, CLV_ROLE_CACHE, "w", CLV_F32, 2, (int64_t[]){8, 8},
                                          how == OF_A_PRODUCT ? &whole : &cut, (clv_init){CLV_INIT_ONES, 0});
        clv_value seen = how >= SEEN_LATER ? clv_constrain(graph, w, &pairs) : w;
        clv_value next = how == OF_ITSELF_TWICE ? clv_add(graph, w, w)
                         : how == OF_A_PRODUCT  ? clv_constrain(graph, clv_einsum(graph, "ij,jk->ik", w, w), &whole)
                                                : clv_scale(graph, w, 2);
        clv_assign(graph, w, next);
        if (how >= READ_LATER)
            clv_output(graph, "old", how == RETURNED_AS_SEEN ? seen : clv_unary(graph, CLV_TANH, seen),
                       how >= SEEN_LATER ? &pairs : &cut);
        clv_program *program = compile_soundly(graph);
        if (copies_in(program) != copies[how])
            fail_msg("update %d: %d copies", (int)how, copies_in(program));
        assert_int_equal(program->buffers[0].role, CLV_ROLE_CACHE);
        clv_program_free(program);
    }
}

static int count(const clv_program *program, const char *kind, int n_in)
{
    int n = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        n += instruction->op && strcmp(instruction->op->def->name, kind) == 0 && instruction->n_in == n_in;
    }
    return n;
}

/* The gradient of rows that were picked is added to that of the product by the same table where it lies, also where
 * both are addends, unless somebody else wants it. */
static void adds_in_place(void **state)
{
    static const char *const mesh[] = {"model=2", "data=2"}, *const table_text[] = {"model,_", "_,_"},
                             *const ids_text[] = {"_", "data"};
    for (int how = 0; how < 2; how++) {
        clv_graph *graph = must_graph(mesh[how]);
        clv_layout table_layout = clv_graph_layout(graph, 2, table_text[how]),
                   ids_layout = clv_graph_layout(graph, 1, ids_text[how]);
        clv_value table = clv_state(graph, "t", CLV_F32, 2, (int64_t[]){64, 32}, &table_layout,
                                    (clv_init){CLV_INIT_NORMAL, 1}),
                  ids = clv_input(graph, "ids", CLV_I32, 1, (int64_t[]){256}, &ids_layout), grad;
        clv_value y = clv_einsum(graph, "bm,vm->bv", clv_embedding(graph, table, ids), table);
        clv_gradients(graph, clv_reduce(graph, CLV_SUM, y, (int[]){0, 1}, 2, false), CLV_NONE, &table, 1, &grad);
        clv_assign(graph, table, clv_sub(graph, table, grad));
        clv_program *program = compile_soundly(graph);
        assert_int_equal(count(program, "embedding_gradient", 3), 1);
        assert_int_equal(count(program, "embedding_gradient", 2), 0);
        assert_int_equal(count(program, "combine", 2), 1);
        clv_program_free(program);
    }
}

/* A term that is read elsewhere, too, keeps a buffer of its own. */
static void adds_apart_what_is_read(void **state)
{
    clv_graph *graph = must_graph("model=2");
    clv_layout layout = clv_graph_layout(graph, 2, "model,_"), whole = clv_layout_replicated(1);
    clv_value table = clv_input(graph, "t", CLV_F32, 2, (int64_t[]){8, 4}, &layout),
              ids = clv_input(graph, "ids", CLV_I32, 1, (int64_t[]){6}, &whole), grad;
    clv_value x = clv_unary(graph, CLV_TANH, clv_embedding(graph, table, ids));
    clv_gradients(graph, clv_reduce(graph, CLV_SUM, x, (int[]){0, 1}, 2, false), CLV_NONE, &table, 1, &grad);
    clv_output(graph, "grad", grad, &layout);
    clv_output(graph, "sum", clv_add(graph, grad, table), &layout);
    clv_program *program = compile_soundly(graph);
    assert_int_equal(count(program, "embedding_gradient", 2), 1);
    assert_int_equal(count(program, "combine", 2), 1);
    clv_program_free(program);
}

/* A group is of all axes of its step, and not of those of a longer one that begins alike. */
static void groups_by_all_axes(void **state)
{
    clv_graph *graph = must_graph("a=2,b=2");
    clv_layout both = clv_graph_layout(graph, 1, "(a,b)"), one = clv_graph_layout(graph, 1, "a");
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){8}, &both),
              y = clv_input(graph, "y", CLV_F32, 1, (int64_t[]){8}, &one);
    int dims[] = {0};
    clv_output(graph, "x", clv_reduce(graph, CLV_SUM, x, dims, 1, false), NULL);
    clv_output(graph, "y", clv_reduce(graph, CLV_SUM, y, dims, 1, false), NULL);
    clv_program *program = compile_soundly(graph);
    assert_int_equal(program->n_groups, 2);
    for (int i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].step)
            assert_int_equal(program->groups[program->instructions[i].group].n, program->instructions[i].step->n_axes);
    clv_program_free(program);
}

static size_t room_for_all(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return (size_t)clv_view_elems(&in[0]) * sizeof(float);
}
static clv_status never_run(const clv_call *call, clv_error *err)
{
    return clv_fail(err, CLV_EUNSUPPORTED, "it is compiled alone");
}

/* A workspace is that of the largest shard, not of the whole. */
static void plans_workspaces_of_shards(void **state)
{
    static const clv_op_def def = {.name = "test.with_workspace",
                                   .min_in = 1,
                                   .max_in = 1,
                                   .n_out = 1,
                                   .shape = same_shape,
                                   .rule = by_elements,
                                   .workspace = room_for_all,
                                   .run = never_run};
    clv_graph *graph = must_graph("a=3");
    clv_layout cut = clv_graph_layout(graph, 1, "a");
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){100}, &cut), y;
    clv_emit(graph, &def, NULL, &x, 1, &y);
    clv_output(graph, "y", y, &cut);
    clv_program *program = compile_soundly(graph);
    assert_int_equal(program->instructions[0].workspace_bytes, 192); /* 34 floats, in whole lines */
    clv_program_free(program);
}

/* Values that live on beside those that are made where others were: chains in place, outputs in the middle, views that
 * are read before, and after, what they see. */
static void keeps_what_is_read_later(void **state)
{
    clv_graph *graph = must_graph("a=2");
    clv_layout cut = clv_graph_layout(graph, 1, "a"), pairs = clv_graph_layout(graph, 1, "a*2");
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){4096}, &cut);
    clv_value a = clv_unary(graph, CLV_TANH, x), seen = clv_constrain(graph, a, &pairs);
    clv_value b = clv_scale(graph, clv_unary(graph, CLV_RELU, x), 2); /* in place */
    clv_value early = clv_scale(graph, seen, 3), c = clv_unary(graph, CLV_SILU, x);
    clv_value d = clv_unary(graph, CLV_TANH, c), e = clv_add(graph, d, b), f = clv_unary(graph, CLV_TANH, e);
    clv_value g = clv_unary(graph, CLV_SILU, x), h = clv_scale(graph, g, 2), i = clv_unary(graph, CLV_TANH, g);
    clv_output(graph, "both", clv_add(graph, h, i), &cut); /* h cannot take over what the next one reads */
    clv_output(graph, "early", early, &pairs);
    clv_output(graph, "middle", e, &cut);
    clv_output(graph, "late", clv_add(graph, clv_add(graph, f, a), d), &cut);
    clv_program_free(compile_soundly(graph));
}

/* A program of a table by hand, which is freed with its graph; its memory is sound. */
static clv_program *lower_soundly(clv_sharding_table *table)
{
    clv_error err = {0};
    clv_program *program = empty_program();
    must(clv_lower_to_program(program, table, &err), &err);
    must(clv_program_plan_memory(program, &err), &err);
    must(clv_program_verify(program, &err), &err);
    clv_graph *graph = (clv_graph *)table->graph;
    clv_arena_free(table->arena);
    clv_graph_free(graph);
    expect_sound_memory(program);
    return program;
}

static int add_alias(clv_sharding_table *table, int place, const clv_layout *layout)
{
    int seen = add_sharded(table, (clv_value){table->sharded[place].value}, layout, false);
    table->sharded[seen].alias_of = place;
    return seen;
}

/* Places that only see another keep it: state is not overwritten while it is still read in another layout, and a value
 * lives as long as the last that reads it, whoever sees it before. */
static void keeps_what_is_seen(void **state)
{
    clv_error err = {0};
    for (int of_state = 0; of_state < 2; of_state++) {
        clv_sharding_table table;
        clv_graph *graph = must_graph("a=2");
        clv_subaxis axis = clv_mesh_whole_axis(&graph->mesh, 0);
        clv_layout cut = clv_graph_layout(graph, 1, "a"), pairs = clv_graph_layout(graph, 1, "a*2");
        clv_strategy by_one = {.n_subaxes = 1, .subaxis = {axis}, .in = {cut, cut}, .out = {cut}},
                     by_two = {.n_subaxes = 1, .subaxis = {axis}, .in = {pairs}, .out = {pairs}};
        const int64_t shape[] = {4096};
        clv_value x = of_state ? clv_state(graph, "x", CLV_F32, 1, shape, &cut, (clv_init){CLV_INIT_ONES, 0})
                               : clv_input(graph, "x", CLV_F32, 1, shape, &cut);
        clv_value first = clv_unary(graph, CLV_TANH, x);
        clv_value second = clv_unary(graph, CLV_RELU, of_state ? x : first);
        clv_value third = of_state ? CLV_NONE : clv_unary(graph, CLV_SILU, x);
        clv_value last = of_state ? CLV_NONE : clv_add(graph, first, third);
        clv_output(graph, "second", second, &pairs);
        if (of_state)
            clv_assign(graph, x, first);
        else
            clv_output(graph, "last", last, &cut);
        must(clv_graph_status(graph, &err), &err);
        must(clv_sharding_table_init(&table, clv_arena_new(), graph, &err), &err);
        int given = add_sharded(&table, x, &cut, true), made = add_sharded(&table, first, &cut, false),
            seen = add_alias(&table, of_state ? given : made, &pairs),
            there = add_sharded(&table, second, &pairs, false);
        add_op(&table, 0, &by_one, given, 0, made);
        add_op(&table, 1, &by_two, seen, 0, there);
        table.output[0] = there;
        if (of_state) {
            table.update[x.id] = (clv_state_update){
                .state = given,
                .becomes = made,
                .explanation = {.need = CLV_NEEDED_BY_STATE, .by = "x", .text = "it is assigned this value"}};
        } else {
            int other = add_sharded(&table, third, &cut, false), end = add_sharded(&table, last, &cut, false);
            add_op(&table, 2, &by_one, given, 0, other);
            add_op(&table, 3, &by_one, made, other, end);
            table.output[1] = end;
        }
        clv_program *program = lower_soundly(&table);
        assert_int_equal(copies_in(program), of_state);
        clv_program_free(program);
    }
}

/* ---- memory ---- */

/* An input and three copies in a row of 64 KiB each, made by hand: at any time two are live, so they take turns. */
static void lays_out_a_program_made_by_hand(void **state)
{
    enum { N = 4, BYTES = 65536 };
    clv_error err = {0};
    clv_program *program = empty_program();
    clv_layout whole = clv_layout_replicated(1);
    clv_reshard_step copy = {.kind = CLV_STEP_SLICE, .from = whole, .to = whole};
    assert_int_equal(clv_mesh_parse(&program->mesh, "a=1", &err), CLV_OK);
    program->buffers = clv_arena_alloc(program->arena, N, sizeof *program->buffers);
    program->instructions = clv_arena_alloc(program->arena, N, sizeof *program->instructions);
    for (int b = 0; b < N; b++)
        program->buffers[program->n_buffers++] = (clv_buffer){.kind = b > 0 ? CLV_BUFFER_TEMP : CLV_BUFFER_INPUT,
                                                              .type = {CLV_F32, 1, {BYTES / 4}},
                                                              .layout = whole,
                                                              .name = b > 0 ? NULL : "x",
                                                              .shares_with = -1};
    for (int i = 0; i + 1 < N; i++)
        program->instructions[program->n_instructions++] = (clv_instruction){
            .step = &copy, .group = -1, .n_in = 1, .n_out = 1, .in = {i}, .out = {i + 1}, .name = "y", .tensor = "x"};
    must(clv_program_plan_memory(program, &err), &err);
    must(clv_program_verify(program, &err), &err);
    assert_int_equal(clv_program_region_bytes(program), 2 * BYTES);
    for (int b = 0; b + 2 < N; b++) {
        assert_int_not_equal(program->buffers[b].offset, program->buffers[b + 1].offset);
        assert_int_equal(program->buffers[b].offset, program->buffers[b + 2].offset);
    }
    clv_program_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(updates_state_in_place_where_it_may),
                                       cmocka_unit_test(adds_in_place),
                                       cmocka_unit_test(adds_apart_what_is_read),
                                       cmocka_unit_test(groups_by_all_axes),
                                       cmocka_unit_test(plans_workspaces_of_shards),
                                       cmocka_unit_test(keeps_what_is_read_later),
                                       cmocka_unit_test(keeps_what_is_seen),
                                       cmocka_unit_test(lowers_a_hand_made_table_as_the_compiler_its_own),
                                       cmocka_unit_test(lowers_what_assign_would_not_choose),
                                       cmocka_unit_test(refuses_bad_tables),
                                       cmocka_unit_test(tells_what_was_decided),
                                       cmocka_unit_test(lays_out_a_program_made_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

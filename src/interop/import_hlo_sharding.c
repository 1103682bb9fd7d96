/* import_hlo_sharding.c - mhlo.sharding, of JAX without Shardy: tiles over numbered devices, as axes of a mesh.
 *
 * "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}": devices are counted through a shape, whose dimensions are
 * transposed, and then divided over the tensor's dimensions, and what is left over replicas. So each dimension has some
 * digits of a device's number. The digits of all shardings of a text together are the axes of a mesh, "axis0" the most
 * significant, and each sharding is rewritten as Shardy's, by these.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "interop/importer.h"

enum { TILE_DIMS = CLV_MAX_RANK + 2, PIECES = 2 * TILE_DIMS, EDGES = 64 };

/* Digits of a device's number: it is divided by what `pre` devices have, modulo `size`. */
typedef struct piece {
    int dim; /* of the tensor */
    int64_t pre, size;
} piece;

typedef struct tiling {
    int n_pieces;
    piece piece[PIECES]; /* major to minor in each dimension */
    int64_t devices;     /* 0: it is replicated */
} tiling;

/* What each step of a scan of the text does with a sharding. */
typedef clv_status visit_fn(void *arg, mlir_module *module, mlir_attr *sharding, const char *open, int rank,
                            clv_error *err);

typedef struct edges {
    int n;
    int64_t at[EDGES]; /* where an axis begins or ends, as a number of devices before it; sorted */
} edges;

static clv_status refuse(const mlir_module *module, const mlir_attr *at, clv_error *err, const char *why)
{
    return mlir_fail(module, at->at, err, CLV_EUNSUPPORTED, "the sharding \"%.100s\" %s", at->text, why);
}

/* "[2,1,2]", past it; the number of items, -1: none. */
static int read_list(int64_t *out, const char **p)
{
    int n = 0;
    char *end;
    if (**p != '[' && **p != '(')
        return -1;
    for ((*p)++; **p && **p != ']' && **p != ')';) {
        long long number = strtoll(*p, &end, 10);
        if (end == *p || n == TILE_DIMS || number < 0 || number > INT32_MAX)
            return -1;
        out[n++] = number;
        *p = end + strspn(end, ", ");
    }
    *p += **p != '\0';
    return n;
}

static clv_status divide(tiling *out, const mlir_module *module, const mlir_attr *at, const int64_t *tiles, int n_tiles,
                         const int64_t *shape, const int64_t *order, int n, clv_error *err)
{
    int64_t pre[TILE_DIMS], left[TILE_DIMS], before = 1;
    for (int i = 0; i < n; i++) {
        pre[i] = before;
        left[i] = shape[i];
        before *= shape[i];
    }
    for (int t = 0, q = 0; t < n_tiles; t++)
        for (int64_t wanted = tiles[t]; wanted > 1;) {
            while (q < n && left[order[q]] == 1)
                q++;
            int64_t have = q < n ? left[order[q]] : 1, take = wanted < have ? wanted : have;
            if (take <= 1 || have % take != 0 || wanted % take != 0 || out->n_pieces == PIECES)
                return refuse(module, at, err, "divides its devices in a way that no mesh does");
            out->piece[out->n_pieces++] = (piece){t, pre[order[q]], take};
            pre[order[q]] *= take;
            left[order[q]] /= take;
            wanted /= take;
        }
    return CLV_OK;
}

/* devices=[tiles]<=[shape]T(order), or a list of numbers in order. */
static clv_status read_tiling(tiling *out, const mlir_module *module, const mlir_attr *at, int rank, clv_error *err)
{
    int64_t tiles[TILE_DIMS], shape[TILE_DIMS], order[TILE_DIMS], product = 1, total = 1;
    const char *p = strstr(at->text, "devices=");
    int n_tiles = 0, n = 0, subgroups = strstr(at->text, "last_tile_dim_replicate") != NULL;
    *out = (tiling){0};
    if (strcmp(at->text, "{replicated}") == 0)
        return CLV_OK;
    const char *dims = strstr(at->text, "last_tile_dims=");
    bool replicates = dims && strncmp(dims, "last_tile_dims={replicated}", 27) == 0;
    subgroups = subgroups || replicates;
    if (!p || (!replicates && (dims || strstr(at->text, "manual"))))
        return refuse(module, at, err, "is none of replicated and devices=[...]<=[...]");
    p += strlen("devices=");
    n_tiles = read_list(tiles, &p);
    if (n_tiles < 0 || n_tiles - subgroups != rank)
        return refuse(module, at, err, "does not have the tensor's dimensions");
    for (int i = 0; i < n_tiles; i++)
        product = tiles[i] > 0 && product <= INT32_MAX ? product * tiles[i] : INT64_MAX;
    if (strncmp(p, "<=", 2) == 0) {
        p += 2;
        n = read_list(shape, &p);
    } else { /* "0,1,2,3" */
        int64_t next = 0;
        char *end;
        for (; *p >= '0' && *p <= '9'; p = end + (*end == ','))
            if (strtoll(p, &end, 10) != next++)
                return refuse(module, at, err, "lists its devices in an order that no mesh has");
        shape[n++] = next;
    }
    for (int i = 0; i < n; i++) {
        order[i] = i;
        total = shape[i] > 0 && total <= INT32_MAX ? total * shape[i] : -1;
    }
    if (*p == 'T') {
        int64_t seen = 0;
        p++;
        if (read_list(order, &p) != n)
            n = -1;
        for (int i = 0; i < n; i++)
            seen |= order[i] < n ? (int64_t)1 << order[i] : 0;
        n = seen == ((int64_t)1 << (n < 0 ? 0 : n)) - 1 ? n : -1;
    }
    if (n < 1 || total != product || total > INT32_MAX)
        return refuse(module, at, err, "does not divide its devices");
    out->devices = total;
    return divide(out, module, at, tiles, rank, shape, order, n, err);
}

/* ---- the axes ---- */

static bool add_edge(edges *e, int64_t at)
{
    int i = 0;
    while (i < e->n && e->at[i] < at)
        i++;
    if (i < e->n && e->at[i] == at)
        return true;
    if (e->n == EDGES)
        return false;
    memmove(&e->at[i + 1], &e->at[i], (size_t)(e->n++ - i) * sizeof *e->at);
    e->at[i] = at;
    return true;
}

static clv_status collect(void *arg, mlir_module *module, mlir_attr *sharding, const char *open, int rank,
                          clv_error *err)
{
    edges *e = arg;
    tiling t;
    CLV_TRY(read_tiling(&t, module, sharding, rank, err));
    if (t.devices == 0)
        return CLV_OK;
    bool fits = add_edge(e, 1) && add_edge(e, t.devices);
    for (int i = 0; fits && i < t.n_pieces; i++)
        fits = add_edge(e, t.piece[i].pre) && add_edge(e, t.piece[i].pre * t.piece[i].size);
    for (int i = 0; fits && i + 1 < e->n; i++)
        fits = e->at[i + 1] % e->at[i] == 0;
    return fits ? CLV_OK : refuse(module, sharding, err, "and others of the text are not of one mesh");
}

static void put(char *text, size_t size, const char *what)
{
    size_t used = strlen(text);
    clv_snprintf(text + used, size - used, "%s", what);
}

/* As Shardy's: @hlo, [{"axis0"}, {}]. open: dimensions that state nothing, "unspecified_dims=[0]". */
static clv_status rewrite(void *arg, mlir_module *module, mlir_attr *sharding, const char *open, int rank,
                          clv_error *err)
{
    const edges *e = arg;
    tiling t;
    char text[CLV_LAYOUT_TEXT] = "@hlo, [";
    int64_t listed[TILE_DIMS];
    const char *list = open ? strstr(open, "unspecified_dims=") : NULL;
    CLV_TRY(read_tiling(&t, module, sharding, rank, err));
    if (list)
        list += strlen("unspecified_dims=");
    int n_open = list ? read_list(listed, &list) : 0;
    for (int d = 0; d < rank; d++) {
        const char *comma = "";
        put(text, sizeof text, d ? ", {" : "{");
        for (int i = 0; i < t.n_pieces; i++)
            for (int a = 0; t.piece[i].dim == d && a + 1 < e->n; a++)
                if (e->at[a] >= t.piece[i].pre && e->at[a + 1] <= t.piece[i].pre * t.piece[i].size) {
                    char name[32];
                    clv_snprintf(name, sizeof name, "%s\"axis%d\"", comma, a);
                    put(text, sizeof text, name);
                    comma = ", ";
                }
        for (int i = 0; i < n_open; i++)
            if (listed[i] == d)
                put(text, sizeof text, "?");
        put(text, sizeof text, "}");
    }
    put(text, sizeof text, "]");
    sharding->key = "sdy.sharding";
    sharding->kind = MLIR_RAW;
    sharding->text = clv_arena_string(module->arena, text);
    return sharding->text ? CLV_OK : clv_fail_memory(err, "a sharding", sizeof text);
}

/* ---- over the text ---- */

static clv_status visit_attrs(visit_fn *visit, void *arg, mlir_module *module, mlir_attr *attrs, int n, int rank,
                              clv_error *err)
{
    const mlir_attr *config = mlir_find_attr(attrs, n, "backend_config");
    for (int i = 0; i < n; i++) {
        bool tiled = strcmp(attrs[i].key, "mhlo.sharding") == 0 && attrs[i].text && !strstr(attrs[i].text, "manual");
        if (tiled)
            CLV_TRY(visit(arg, module, &attrs[i], config ? config->text : NULL, rank, err));
    }
    return CLV_OK;
}

static clv_status visit_region(visit_fn *visit, void *arg, mlir_module *module, const mlir_region *region,
                               clv_error *err)
{
    for (int i = 0; i < region->n_ops; i++) {
        const mlir_op *op = &region->ops[i];
        int rank = op->n_results == 1 && !op->result_types[0].fault ? op->result_types[0].tensor.rank : -1;
        if (rank >= 0)
            CLV_TRY(visit_attrs(visit, arg, module, op->attrs, op->n_attrs, rank, err));
        for (int r = 0; r < op->n_regions; r++)
            CLV_TRY(visit_region(visit, arg, module, &op->regions[r], err));
    }
    return CLV_OK;
}

static clv_status visit_all(visit_fn *visit, void *arg, mlir_module *module, clv_error *err)
{
    for (int f = 0; f < module->n_functions; f++) {
        const mlir_function *function = &module->functions[f];
        for (int i = 0; i < function->n_args + function->n_results; i++) {
            const mlir_port *port =
                i < function->n_args ? &function->args[i] : &function->results[i - function->n_args];
            if (!port->type.fault)
                CLV_TRY(visit_attrs(visit, arg, module, port->attrs, port->n_attrs, port->type.tensor.rank, err));
        }
        CLV_TRY(visit_region(visit, arg, module, &function->body, err));
    }
    return CLV_OK;
}

clv_status import_rewrite_hlo_shardings(mlir_module *module, clv_error *err)
{
    edges e = {0};
    CLV_TRY(visit_all(collect, &e, module, err));
    if (e.n > 1) {
        mlir_mesh *meshes = clv_arena_alloc(module->arena, (size_t)module->n_meshes + 1, sizeof *meshes);
        if (!meshes)
            return clv_fail_memory(err, "a mesh", sizeof *meshes);
        if (module->n_meshes > 0)
            memcpy(meshes, module->meshes, (size_t)module->n_meshes * sizeof *meshes);
        mlir_mesh *mesh = &meshes[module->n_meshes];
        mesh->name = "hlo";
        if (e.n - 1 > CLV_MAX_AXES)
            return clv_fail(err, CLV_ELIMIT, "%s: shardings of more than %d axes", module->file, CLV_MAX_AXES);
        for (int a = 0; a + 1 < e.n; a++) {
            clv_axis *axis = &mesh->mesh.axis[mesh->mesh.n_axes++];
            clv_snprintf(axis->name, sizeof axis->name, "axis%d", a);
            axis->size = e.at[a + 1] / e.at[a];
        }
        module->meshes = meshes;
        module->n_meshes++;
    }
    return visit_all(rewrite, &e, module, err);
}

/* ---- @Sharding ---- */

static clv_status custom_call(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const char *callee = op->symbol ? op->symbol : "?";
    bool shards = strncmp(callee, "SPMDFullToShard", 15) == 0 || strncmp(callee, "SPMDShardToFull", 15) == 0;
    clv_layout layout;
    bool stated;
    if (shards)
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "@%s is not supported: shard_map without Shardy; lower the program with it "
                           "(jax.config.update('jax_use_shardy_partitioner', True))",
                           callee);
    if (strcmp(callee, "Sharding") != 0 || op->n_operands != 1 || op->n_results != 1)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "@%s is not supported", callee);
    CLV_TRY(import_sharding(&layout, &stated, im, op->attrs, op->n_attrs, in[0].type.rank, err));
    out[0] = in[0];
    if (stated)
        out[0] = imported_of(in[0].type, clv_constrain(im->graph, imported_whole(im, &in[0]), &layout));
    return CLV_OK;
}

const import_row import_hlo_sharding_rows[] = {
    {"stablehlo.custom_call", custom_call, 0, false, false},
    {0},
};

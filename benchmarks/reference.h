/* The scope `reference` under vllm-0.28, by hand, for SPIN: the same states and actions as model/, told in C.
 *
 * Full attention (group 0, blocks of 2 tokens) and Mamba (group 1, blocks of 1); composite(outer, composite(inner)), both
 * claiming; adversarial eviction; a budget of 2 tokens; load before copy. What a state leaves out is as in solver/codec.py.
 * Functions are named after those of model/ that they follow.
 */
#include <string.h>

enum { REQUESTS = 3, BLOCKS = POOL, GROUPS = 2, COLUMNS = 5, BUDGET = 2, SCHEDULER_BLOCK = 2 };
enum { TO_COME, GONE, LIVE };
enum { ABSENT, WAITING, RUNNING, LOADING, LOADED, LOAD_FAILED, ABORTED };
enum { Q_RUNNING, Q_WAITING, Q_SKIPPED };
/* What a block holds: nothing, a value computed from something wrong, attention KV or a state (start, prefix). */
enum { UNWRITTEN = 0, TAINTED = 1, KV = 64, STATE = 192 };

typedef unsigned char byte_;

typedef struct {
    byte_ status, computed, asked, withdrawn, has_tables, junction;
    byte_ published[GROUPS], columns[GROUPS], table[GROUPS][COLUMNS];
    byte_ start, end, local[GROUPS], backed; /* the load under way */
} Request;

typedef struct {
    byte_ phase[REQUESTS], queued[3], queue[3][REQUESTS];
    Request request[REQUESTS];
    byte_ refs[BLOCKS], label[BLOCKS], age[BLOCKS], content[BLOCKS], free_blocks, free_queue[BLOCKS];
} Engine;

/* Prefixes: 1..4 are x0..x3, 5 is b's own, 6 to 8 are c's own. PREFIX[r][n] is the first n tokens of r. */
static const byte_ LENGTH[REQUESTS] = { 4, 5, 5 };
static const byte_ PREFIX[REQUESTS][6] = { { 0, 1, 2, 3, 4 }, { 0, 1, 2, 3, 4, 5 }, { 0, 1, 2, 6, 7, 8 } };
static const byte_ TOKENS[9] = { 0, 1, 2, 3, 4, 5, 3, 4, 5 };
static const byte_ PARENT[9] = { 0, 0, 1, 2, 3, 4, 2, 6, 7 };
static const byte_ BLOCK[GROUPS] = { 2, 1 };

static int columns_for(int tokens, int block) { return (tokens + block - 1) / block; }
static int first_tokens(int prefix, int tokens) { while (TOKENS[prefix] > tokens) prefix = PARENT[prefix]; return prefix; }
static int label_of(int group, int prefix) { return 1 + 16 * group + prefix; }
static int kv(int start, int prefix) { return KV + 16 * start + prefix; }
static int state(int prefix) { return STATE + prefix; }
static int is_kv(int content) { return content >= KV && content < STATE; }
static int start_of(int content) { return (content - KV) / 16; }
static int prefix_of(int content) { return content & 15; }

/* --- pool.py -------------------------------------------------------------------------------------------------- */

static int find(const Engine *e, int label) {
    for (int b = 1; b < BLOCKS; b++) if (e->label[b] == label && e->age[b] == 0) return b;
    return 0;
}

static void unpublish(Engine *e, int block) {
    int label = e->label[block];
    if (!label) return;
    for (int b = 1; b < BLOCKS; b++) if (e->label[b] == label && e->age[b] > e->age[block]) e->age[b]--;
    e->label[block] = e->age[block] = 0;
}

static void publish_block(Engine *e, int block, int label) {
    unpublish(e, block);
    int older = 0;
    for (int b = 1; b < BLOCKS; b++) older += e->label[b] == label;
    e->label[block] = label;
    e->age[block] = older;
}

static int take(Engine *e, int count, byte_ *taken) {
    if (count > e->free_blocks) return 0;
    for (int i = 0; i < count; i++) {
        int block = taken[i] = e->free_queue[i];
        unpublish(e, block);
        e->refs[block]++;
        e->content[block] = UNWRITTEN; /* the worker wipes what was taken before it does anything else */
    }
    e->free_blocks -= count;
    memmove(e->free_queue, e->free_queue + count, e->free_blocks);
    return 1;
}

static void touch(Engine *e, int block) {
    if (!block) return;
    if (e->refs[block]++ == 0) {
        int kept = 0;
        for (int i = 0; i < e->free_blocks; i++) if (e->free_queue[i] != block) e->free_queue[kept++] = e->free_queue[i];
        e->free_blocks = kept;
    }
}

/* Releases columns [0, count) of a table, the last first. */
static void release(Engine *e, const byte_ *table, int count) {
    byte_ front[BLOCKS], back[BLOCKS], all[2 * BLOCKS];
    int fronts = 0, backs = 0, n = 0;
    for (int i = count - 1; i >= 0; i--) {
        int block = table[i];
        if (!block || --e->refs[block]) continue;
        if (e->label[block]) back[backs++] = block; else front[fronts++] = block;
    }
    for (int i = 0; i < fronts; i++) all[n++] = front[i];
    for (int i = 0; i < e->free_blocks; i++) all[n++] = e->free_queue[i];
    for (int i = 0; i < backs; i++) all[n++] = back[i];
    memcpy(e->free_queue, all, n);
    e->free_blocks = n;
}

/* --- allocation.py -------------------------------------------------------------------------------------------- */

static int out_of_sight(int group, int computed) { return computed == 0 || group == 0 ? 0 : computed - 1; }

static void retire(Engine *e, Request *r) {
    for (int g = 0; g < GROUPS; g++) {
        int skipped = out_of_sight(g, r->computed);
        if (skipped > r->columns[g]) skipped = r->columns[g];
        release(e, r->table[g], skipped);
        memset(r->table[g], 0, skipped);
    }
}

static void free_all(Engine *e, Request *r) {
    if (r->has_tables) for (int g = 0; g < GROUPS; g++) release(e, r->table[g], r->columns[g]);
    memset(r->table, 0, sizeof r->table);
    memset(r->columns, 0, sizeof r->columns);
    memset(r->published, 0, sizeof r->published);
    r->has_tables = r->computed = 0;
}

static int extend(Engine *e, Request *r, int tokens) {
    for (int g = 0; g < GROUPS; g++) {
        int missing = columns_for(tokens, BLOCK[g]) - r->columns[g];
        if (missing <= 0) continue;
        int nulls = g == 1 ? missing - 1 : 0;
        byte_ taken[BLOCKS];
        if (!take(e, missing - nulls, taken)) return 0;
        r->columns[g] += nulls;
        for (int i = 0; i < missing - nulls; i++) r->table[g][r->columns[g]++] = taken[i];
    }
    return 1;
}

static int publish(Engine *e, int name, int tokens) {
    Request *r = &e->request[name];
    int states = 0, most = tokens < LENGTH[name] ? tokens : LENGTH[name];
    most -= most % SCHEDULER_BLOCK;
    for (int g = 0; g < GROUPS; g++) {
        for (int c = r->published[g]; c < most / BLOCK[g]; c++)
            if (r->table[g][c]) {
                int prefix = PREFIX[name][(c + 1) * BLOCK[g]];
                publish_block(e, r->table[g][c], label_of(g, prefix));
                if (g == 1) states |= 1 << prefix;
            }
        if (most / BLOCK[g] > r->published[g]) r->published[g] = most / BLOCK[g];
    }
    return states;
}

/* --- lookup.py, policies/vllm.py ------------------------------------------------------------------------------ */

static int hit(const Engine *e, int name, int group, int bound) {
    if (group == 0) {
        int run = 0;
        while (run < bound / 2 && find(e, label_of(0, PREFIX[name][2 * (run + 1)]))) run++;
        return 2 * run;
    }
    for (int end = bound; end > 0; end--)
        if (end % SCHEDULER_BLOCK == 0 && find(e, label_of(1, PREFIX[name][end]))) return end;
    return 0;
}

typedef struct { int local, external, asynchronous, reached[GROUPS], backed; } Decision;

static Decision decide(const Engine *e, int name, Request *r) {
    int N = LENGTH[name], candidate = N - 1, longest = 0, round_start;
    do {
        round_start = candidate;
        for (int g = 0; g < GROUPS; g++) {
            candidate = hit(e, name, g, candidate);
            if (candidate > longest) longest = candidate;
        }
    } while (candidate < round_start && candidate > 0);
    int common = candidate, full = hit(e, name, 0, N - 1), mamba = hit(e, name, 1, N - 1);
    int deepest = full > mamba ? full : mamba, shallowest = full < mamba ? full : mamba;
    int L = deepest > full ? common : full, diverged = deepest <= full && shallowest < full;
    int asked = L - L % SCHEDULER_BLOCK;
    int said = name == 0 ? 0 : 2, most = N - asked - 1;
    int E = said < most ? said : most;
    r->asked = 1;
    Decision d = { diverged ? common : L, 0, 0 };
    if (E > L - asked) { d.local = asked; d.external = E; d.asynchronous = name == 1; }
    for (int g = 0; g < GROUPS; g++) d.reached[g] = hit(e, name, g, d.local);
    d.backed = hit(e, name, 1, asked) == asked;
    r->junction = d.local == common && longest > common ? longest : 0;
    return d;
}

static int chunk_tokens(const Request *r, int known, int start, int budget) {
    int tokens = known - start < budget ? known - start : budget, end = start + tokens;
    if (start >= known) return tokens;
    if (start < r->junction && r->junction < end) end = r->junction;
    return end > start ? end - start : 0;
}

/* --- admission.py, scheduler.py ------------------------------------------------------------------------------- */

typedef struct { int name, computed, end, starts; } Chunk;
typedef struct { Chunk chunk[REQUESTS]; int chunks, load, start, end, local; } Plan; /* load: who loads now, or -1 */

static void append(Engine *e, int queue, int name) { e->queue[queue][e->queued[queue]++] = name; }

static void drop(Engine *e, int queue, int name) {
    int kept = 0;
    for (int i = 0; i < e->queued[queue]; i++) if (e->queue[queue][i] != name) e->queue[queue][kept++] = e->queue[queue][i];
    memset(e->queue[queue] + kept, 0, REQUESTS - kept);
    e->queued[queue] = kept;
}

static void preempt(Engine *e, int name) {
    free_all(e, &e->request[name]);
    e->request[name].status = WAITING;
    drop(e, Q_RUNNING, name);
    memmove(e->queue[Q_WAITING] + 1, e->queue[Q_WAITING], e->queued[Q_WAITING]++);
    e->queue[Q_WAITING][0] = name;
}

static void finish(Engine *e, int name) {
    Request *r = &e->request[name];
    if (r->status == LOADING) { r->status = ABORTED; drop(e, Q_SKIPPED, name); return; }
    if (r->has_tables) retire(e, r);
    free_all(e, r);
    for (int q = 0; q < 3; q++) drop(e, q, name);
    memset(r, 0, sizeof *r);
    e->phase[name] = GONE;
}

static void plan_chunk(Engine *e, Plan *p, int name, int count, int *budget, int starts, int *states) {
    Request *r = &e->request[name];
    *states |= publish(e, name, r->computed + count);
    p->chunk[p->chunks++] = (Chunk){ name, r->computed, r->computed + count, starts };
    *budget -= count;
    r->computed += count;
}

/* Whether the request could be admitted: 1 it runs, 2 it loads first, 0 not now. */
static int admit(Engine *e, Plan *p, int name, int *budget, int *states) {
    Request *r = &e->request[name];
    Decision d = decide(e, name, r);
    if (d.reached[1] && *states >> PREFIX[name][d.reached[1]] & 1) return 0;
    int resume = d.local + d.external, chunk = 0;
    if (!d.asynchronous) {
        chunk = chunk_tokens(r, LENGTH[name], resume, *budget);
        if (!chunk) return 0;
    }
    Engine before = *e;
    for (int g = 0; g < GROUPS; g++) {
        int skipped = out_of_sight(g, resume), own = columns_for(d.reached[g], BLOCK[g]);
        r->columns[g] = skipped;
        for (int c = g == 1 && own ? own - 1 : 0; c < own; c++)
            if (c >= skipped) {
                int block = find(e, label_of(g, PREFIX[name][(c + 1) * BLOCK[g]]));
                touch(e, block);
                r->table[g][c] = block;
            }
        if (own > skipped) r->columns[g] = own;
        r->published[g] = r->columns[g];
    }
    r->has_tables = 1;
    if (d.external)
        for (int g = 0; g < GROUPS; g++) {
            int missing = columns_for(resume, BLOCK[g]) - r->columns[g];
            byte_ taken[BLOCKS];
            if (missing <= 0) continue;
            if (!take(e, missing, taken)) { *e = before; return 0; }
            for (int i = 0; i < missing; i++) r->table[g][r->columns[g]++] = taken[i];
        }
    if (chunk && !extend(e, r, resume + chunk)) { *e = before; return 0; }
    r->computed = resume;
    if (d.asynchronous) {
        r->status = LOADING;
        r->start = d.local;
        r->end = resume;
        r->backed = d.backed;
        for (int g = 0; g < GROUPS; g++) r->local[g] = d.reached[g];
        return 2;
    }
    if (d.external) { p->load = name; p->start = d.local; p->end = resume; p->local = d.reached[0]; }
    r->status = RUNNING;
    append(e, Q_RUNNING, name);
    plan_chunk(e, p, name, chunk, budget, 1, states);
    return 1;
}

static void schedule(Engine *e, Plan *p) {
    int budget = BUDGET, states = 0, preempted = 0, at = 0;
    memset(p, 0, sizeof *p);
    p->load = -1;
    while (at < e->queued[Q_RUNNING] && budget > 0) {
        int name = e->queue[Q_RUNNING][at];
        Request *r = &e->request[name];
        int count = chunk_tokens(r, LENGTH[name], r->computed, budget), itself = 0;
        if (!count) { at++; continue; }
        retire(e, r);
        for (;;) {
            Engine before = *e;
            if (extend(e, r, r->computed + count)) break;
            *e = before;
            int victim = e->queue[Q_RUNNING][e->queued[Q_RUNNING] - 1];
            preempt(e, victim);
            preempted = 1;
            if ((itself = victim == name)) break;
        }
        if (itself) break;
        plan_chunk(e, p, name, count, &budget, 0, &states);
        at++;
    }
    if (preempted) return;
    byte_ skipped_now[REQUESTS];
    int skips = 0;
    while (e->queued[Q_SKIPPED] + e->queued[Q_WAITING] && budget > 0) {
        int queue = e->queued[Q_SKIPPED] ? Q_SKIPPED : Q_WAITING, name = e->queue[queue][0], done;
        Request *r = &e->request[name];
        if (r->status == LOADING) { drop(e, queue, name); skipped_now[skips++] = name; continue; }
        if (r->status == LOADED) {
            states |= publish(e, name, r->computed);
            if (r->computed > LENGTH[name] - 1) r->computed = LENGTH[name] - 1;
        } else if (r->status == LOAD_FAILED)
            free_all(e, r);
        r->status = WAITING;
        if (r->has_tables) {
            int count = chunk_tokens(r, LENGTH[name], r->computed, budget);
            Engine before = *e;
            done = count != 0;
            if (done && !extend(e, r, r->computed + count)) { *e = before; done = 0; }
            if (done) {
                r->status = RUNNING;
                append(e, Q_RUNNING, name);
                plan_chunk(e, p, name, count, &budget, 1, &states);
            }
        } else
            done = admit(e, p, name, &budget, &states);
        if (!done) break;
        drop(e, queue, name);
        if (done == 2) skipped_now[skips++] = name;
    }
    for (int i = 0; i < e->queued[Q_SKIPPED]; i++) skipped_now[skips++] = e->queue[Q_SKIPPED][i];
    memset(e->queue[Q_SKIPPED], 0, REQUESTS);
    memcpy(e->queue[Q_SKIPPED], skipped_now, skips);
    e->queued[Q_SKIPPED] = skips;
}

/* --- worker.py, memory.py, loading.py ------------------------------------------------------------------------- */

static void write_kv(Engine *e, int block, int start, int prefix) {
    int found = e->content[block];
    if (!block) return;
    if (is_kv(found)) {
        int before = prefix_of(found), end = TOKENS[prefix], kept = start;
        if (start_of(found) < start && TOKENS[before] >= start && first_tokens(before, start) == first_tokens(prefix, start))
            kept = start_of(found);
        if (TOKENS[before] > end && end >= start_of(found) && first_tokens(before, end) == prefix) prefix = before;
        start = kept;
    }
    e->content[block] = kv(start, prefix);
}

static int holds_kv(int found, int start, int prefix) {
    return is_kv(found) && start_of(found) <= start && first_tokens(prefix_of(found), TOKENS[prefix]) == prefix
        && TOKENS[prefix_of(found)] >= TOKENS[prefix];
}

static void write_load(Engine *e, int name, int start, int end) {
    Request *r = &e->request[name];
    for (int c = start / 2; c < columns_for(end, 2); c++) {
        int first = start > 2 * c ? start : 2 * c, last = end < 2 * c + 2 ? end : 2 * c + 2;
        if (first < last) write_kv(e, r->table[0][c], first, PREFIX[name][last]);
    }
    if (r->table[1][end - 1]) e->content[r->table[1][end - 1]] = state(PREFIX[name][end]);
}

static int reads_kv(const Engine *e, const Chunk *k) {
    const Request *r = &e->request[k->name];
    int edge[3] = { 0, k->computed, k->end };
    for (int part = 0; part < 2; part++)
        for (int c = edge[part] / 2; c < columns_for(edge[part + 1], 2); c++) {
            int first = edge[part] > 2 * c ? edge[part] : 2 * c;
            int last = edge[part + 1] < 2 * c + 2 ? edge[part + 1] : 2 * c + 2;
            int block = r->table[0][c];
            if (first < last && (!block || !holds_kv(e->content[block], first, PREFIX[k->name][last]))) return 0;
        }
    return 1;
}

/* Executes the plan; returns which of its requests read something wrong. */
static int execute(Engine *e, const Plan *p, int fails) {
    int moved[REQUESTS], tainted = 0;
    if (p->load >= 0 && !fails) write_load(e, p->load, p->start, p->end);
    for (int i = 0; i < p->chunks; i++) {
        const Chunk *k = &p->chunk[i];
        moved[i] = k->computed && k->computed != k->end ? e->content[e->request[k->name].table[1][k->computed - 1]] : -1;
    }
    for (int i = 0; i < p->chunks; i++)
        if (moved[i] >= 0) {
            int block = e->request[p->chunk[i].name].table[1][p->chunk[i].end - 1];
            if (block) e->content[block] = moved[i];
        }
    for (int i = 0; i < p->chunks; i++) {
        const Chunk *k = &p->chunk[i];
        for (int c = k->computed / 2; c < columns_for(k->end, 2); c++)
            write_kv(e, e->request[k->name].table[0][c], k->computed > 2 * c ? k->computed : 2 * c,
                     PREFIX[k->name][k->end < 2 * c + 2 ? k->end : 2 * c + 2]);
    }
    int bad = 0;
    for (int i = 0; i < p->chunks; i++) {
        const Chunk *k = &p->chunk[i];
        int block = e->request[k->name].table[1][k->end - 1];
        if (k->computed && (!block || e->content[block] != state(PREFIX[k->name][k->computed]))) bad |= 1 << i;
        if (!reads_kv(e, k)) bad |= 1 << i;
    }
    while (bad & ~tainted) {
        int newly = bad & ~tainted;
        tainted |= newly;
        for (int i = 0; i < p->chunks; i++)
            if (newly >> i & 1) {
                const Chunk *k = &p->chunk[i];
                for (int c = k->computed / 2; c < columns_for(k->end, 2); c++) {
                    int block = e->request[k->name].table[0][c], start = k->computed > 2 * c ? k->computed : 2 * c;
                    if (!block) continue;
                    int found = e->content[block];
                    e->content[block] = is_kv(found) && start_of(found) < start
                        ? kv(start_of(found), first_tokens(prefix_of(found), start)) : TAINTED;
                }
            }
        for (int i = 0; i < p->chunks; i++)
            if (!(tainted >> i & 1) && !reads_kv(e, &p->chunk[i])) bad |= 1 << i;
    }
    int wrong = 0;
    for (int i = 0; i < p->chunks; i++) {
        const Chunk *k = &p->chunk[i];
        int block = e->request[k->name].table[1][k->end - 1];
        if (block) e->content[block] = tainted >> i & 1 ? TAINTED : state(PREFIX[k->name][k->end]);
        if (tainted >> i & 1) wrong |= 1 << k->name;
    }
    return wrong;
}

/* --- rollback.py, system.py ----------------------------------------------------------------------------------- */

static int holds_any(const Request *r, int poisoned) {
    for (int g = 0; g < GROUPS; g++)
        for (int c = 0; c < r->columns[g]; c++) if (r->table[g][c] && poisoned >> r->table[g][c] & 1) return 1;
    return 0;
}

static int roll_back(Engine *e, const Plan *p) {
    int poisoned = 0, affected[REQUESTS], count = 0, pending = (1 << p->chunks) - 1, rolled = 0, found;
    const Request *l = &e->request[p->load];
    for (int c = (p->local < p->start ? p->local : p->start) / 2; c < columns_for(p->end, 2); c++)
        poisoned |= 1 << l->table[0][c];
    poisoned |= 1 << l->table[1][p->end - 1];
    poisoned &= ~1;
    do {
        int hits = found = 0;
        for (int i = 0; i < p->chunks; i++)
            if (pending >> i & 1 && holds_any(&e->request[p->chunk[i].name], poisoned)) hits |= 1 << i;
        for (int i = 0; i < p->chunks; i++)
            if (hits >> i & 1) {
                const Chunk *k = &p->chunk[i];
                const Request *r = &e->request[k->name];
                pending &= ~(1 << i);
                affected[count++] = k->name;
                rolled |= 1 << k->name;
                for (int c = k->computed / 2; c < r->columns[0]; c++) poisoned |= 1 << r->table[0][c];
                poisoned |= 1 << r->table[1][r->columns[1] - 1];
                poisoned &= ~1;
                found = 1;
            }
    } while (found);
    for (int name = 0; name < REQUESTS; name++)
        if (e->request[name].status == LOADING && holds_any(&e->request[name], poisoned)) e->request[name].withdrawn = 1;
    for (int b = 1; b < BLOCKS; b++) if (poisoned >> b & 1) unpublish(e, b);
    while (count) preempt(e, affected[--count]);
    return rolled;
}

/* Forgets what no later action can tell apart; returns whether every label tells what its block holds. */
static int normal(Engine *e) {
    int sound = 1;
    for (int b = 1; b < BLOCKS; b++) {
        int label = e->label[b] - 1, prefix = label & 15;
        if (e->label[b])
            sound &= e->content[b] == (label < 16 ? kv(TOKENS[prefix] - 2, prefix) : state(prefix));
        else if (!e->refs[b])
            e->content[b] = UNWRITTEN;
    }
    for (int name = 0; name < REQUESTS; name++) {
        Request *r = &e->request[name];
        int keeps = r->has_tables && r->status != LOAD_FAILED && r->status != ABORTED;
        if (!keeps || r->junction <= r->computed) r->junction = 0;
        if (r->status != LOADING && r->status != ABORTED) {
            r->start = r->end = r->backed = 0;
            memset(r->local, 0, sizeof r->local);
        }
    }
    memset(e->free_queue + e->free_blocks, 0, BLOCKS - e->free_blocks);
    return sound;
}

static int may_step(const Engine *e) { return e->phase[0] == LIVE || e->phase[1] == LIVE || e->phase[2] == LIVE; }

static int may_step_failing(const Engine *e) {
    if (e->phase[2] != LIVE) return 0;
    Engine copy = *e;
    Plan p;
    schedule(&copy, &p);
    return p.load >= 0;
}

static int step(Engine *e, int fails) {
    Plan p;
    schedule(e, &p);
    int wrong = execute(e, &p, fails), rolled = 0;
    if (fails) rolled = roll_back(e, &p);
    for (int i = 0; i < p.chunks; i++) {
        int name = p.chunk[i].name;
        if (e->request[name].status == RUNNING && e->request[name].computed == LENGTH[name]) finish(e, name);
    }
    return normal(e) && !(wrong & ~rolled);
}

static int arrive(Engine *e, int name) {
    e->phase[name] = LIVE;
    e->request[name].status = WAITING;
    append(e, Q_WAITING, name);
    return normal(e);
}

static int may_end_load(const Engine *e, int name) {
    return e->request[name].status == LOADING || e->request[name].status == ABORTED;
}

static int end_load(Engine *e, int name, int succeeds) {
    Request *r = &e->request[name];
    if (succeeds) write_load(e, name, r->start, r->end);
    if (r->status == ABORTED) finish(e, name);
    else { r->status = succeeds && !r->withdrawn ? LOADED : LOAD_FAILED; r->withdrawn = 0; }
    return normal(e);
}

static int may_abort(const Engine *e, int name) { return e->phase[name] == LIVE && e->request[name].status != ABORTED; }
static int abort_request(Engine *e, int name) { finish(e, name); return normal(e); }

static int may_evict(const Engine *e, int block) { return e->label[block] && !e->age[block] && !e->refs[block]; }
static int evict(Engine *e, int block) { unpublish(e, block); return normal(e); }

static int may_reset(const Engine *e) {
    int cached = 0;
    for (int b = 1; b < BLOCKS; b++) cached |= e->label[b];
    for (int name = 0; name < REQUESTS; name++) {
        const Request *r = &e->request[name];
        if (r->has_tables && r->status != RUNNING && holds_any(r, ~1)) return 0;
    }
    return cached || e->queued[Q_RUNNING];
}

static int reset(Engine *e) {
    while (e->queued[Q_RUNNING]) preempt(e, e->queue[Q_RUNNING][e->queued[Q_RUNNING] - 1]);
    for (int b = 1; b < BLOCKS; b++) unpublish(e, b);
    return normal(e);
}

static void start(Engine *e) {
    for (int b = 1; b < BLOCKS; b++) e->free_queue[e->free_blocks++] = b;
}

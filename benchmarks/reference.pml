/* The scope `reference` for SPIN: one process, every action one atomic transition. reference.h says what an action does.
 *
 * SPIN also counts the state before the engine has started, and the transition out of it.
 */
c_decl {
    \#include "reference.h"
    \#define ENGINE (&now.engine)
}
c_state "Engine engine" "Global"
byte sound = 1;

#define ACT(guard, effect) c_expr { guard } -> c_code { now.sound = effect; }; assert(sound)
#define FOR_REQUEST(name) \
    :: d_step { ACT(now.engine.phase[name] == TO_COME, arrive(ENGINE, name)) } \
    :: d_step { ACT((may_end_load)(ENGINE, name), end_load(ENGINE, name, 1)) } \
    :: d_step { ACT((may_end_load)(ENGINE, name), end_load(ENGINE, name, 0)) } \
    :: d_step { ACT((may_abort)(ENGINE, name), abort_request(ENGINE, name)) }
#define FOR_BLOCK(block) \
    :: d_step { ACT(block < BLOCKS && (may_evict)(ENGINE, block), evict(ENGINE, block)) }

active proctype scheduler() {
    c_code { start(ENGINE); };
end:
    do
    :: d_step { ACT((may_step)(ENGINE), step(ENGINE, 0)) }
    :: d_step { ACT((may_step_failing)(ENGINE), step(ENGINE, 1)) }
    :: d_step { ACT((may_reset)(ENGINE), reset(ENGINE)) }
    FOR_REQUEST(0)
    FOR_REQUEST(1)
    FOR_REQUEST(2)
    FOR_BLOCK(1)
    FOR_BLOCK(2)
    FOR_BLOCK(3)
    FOR_BLOCK(4)
    FOR_BLOCK(5)
    FOR_BLOCK(6)
    od
}

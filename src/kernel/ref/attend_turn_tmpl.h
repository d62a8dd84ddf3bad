/* kernel/ref/attend_turn_tmpl.h: turning of queries, keys and values, so that 8 bits suffice for them.
 *
 * A few components of keys and queries are much larger than the rest in every token, and one scale for a token then
 * leaves the others few bits. A Hadamard matrix H (H · H = n, all entries 1 or -1) spreads each component over all: a
 * key is stored as H·k / n, a query is multiplied as H·q, and (H·q) · (H·k) / n = q · k. Values are stored as H·v / n
 * and outputs turned back by H. n is a power of two, so the division is exact; and because it is the stored side that
 * is divided, nothing finite overflows while it is turned. Inside a vector of 16 the matrix is multiplied (products
 * with 1 and -1 are exact, sums have one order), beyond it blocks of 16 are added and subtracted: every instruction set
 * makes the same bits. Not taken: butterflies inside a vector, which need shuffles of their own for every width. */
#include "kernel/attend_layout.h"
#include "kernel/ref/vec_types.h"

static const float turn_signs[16][16] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},         {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
    {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1}, {1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1},
    {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1}, {1, -1, 1, -1, -1, 1, -1, 1, 1, -1, 1, -1, -1, 1, -1, 1},
    {1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1, 1, 1}, {1, -1, -1, 1, -1, 1, 1, -1, 1, -1, -1, 1, -1, 1, 1, -1},
    {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}, {1, -1, 1, -1, 1, -1, 1, -1, -1, 1, -1, 1, -1, 1, -1, 1},
    {1, 1, -1, -1, 1, 1, -1, -1, -1, -1, 1, 1, -1, -1, 1, 1}, {1, -1, -1, 1, 1, -1, -1, 1, -1, 1, 1, -1, -1, 1, 1, -1},
    {1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1}, {1, -1, 1, -1, -1, 1, -1, 1, -1, 1, -1, 1, 1, -1, 1, -1},
    {1, 1, -1, -1, -1, -1, 1, 1, -1, -1, 1, 1, 1, 1, -1, -1}, {1, -1, -1, 1, -1, 1, 1, -1, -1, 1, 1, -1, 1, -1, -1, 1},
};

/* Components turned together: the greatest power of two that divides the width; 1 where blocks of 16 do not fit. */
static size_t turn_block(size_t head_width)
{
    const size_t block = head_width & (~head_width + 1);
    return block < 16 ? 1 : block < ATTEND_TURN ? block : ATTEND_TURN;
}

/* x = H · x for n components, a multiple of 16 and of the block. */
static void turn(float *x, size_t n, size_t block)
{
    for (size_t c = 0; c < n && block > 1; c += 16) {
        vf sums[16 / VL];
        for (size_t j = 0; j < 16 / VL; j++)
            sums[j] = v_set(0.0f);
        for (size_t i = 0; i < 16; i++)
            for (size_t j = 0; j < 16 / VL; j++)
                sums[j] = v_fma(v_set(x[c + i]), v_load(turn_signs[i] + j * VL), sums[j]);
        memcpy(x + c, sums, sizeof sums);
    }
    for (size_t half = 16; half < block; half *= 2)
        for (size_t c = 0; c < n; c += 2 * half)
            for (size_t i = c; i < c + half; i += VL) {
                const vf a = v_load(x + i), b = v_load(x + i + half);
                v_store(x + i, a + b);
                v_store(x + i + half, a - b);
            }
}

/* Components c … c + ATTEND_TURN - 1 of x (n in all; zeros behind them) times 1 / block, turned; returns how many,
 * rounded up to 16. */
static size_t turn_part(const float *x, size_t n, size_t c, size_t block, float *out)
{
    const size_t here = n - c < ATTEND_TURN ? n - c : ATTEND_TURN, padded = attend_round(here, 16);
    const float share = 1.0f / (float)block;
    for (size_t i = 0; i < padded; i += VL)
        v_store(out + i, v_load_n(x + c + i, i < here ? here - i : 0) * share);
    turn(out, padded, block);
    return padded;
}

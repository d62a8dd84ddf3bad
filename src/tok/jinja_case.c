/* tok/jinja_case.c: case mappings and character classes of Unicode, as Python's str has them.
 *
 * Mappings are utf8proc's simple ones plus those of several characters or with context that occur in running text:
 * ß, İ, the final sigma, Latin ligatures. Python's full table (mostly Greek with iota and Armenian ligatures) is not
 * worth its size here. */
#include "tok/jinja_int.h"

#include <string.h>
#include <utf8proc.h>

static const struct {
    uint32_t code;
    const char *upper, *title;
} special_upper[] = {
    {0xDF, "SS", "Ss"},     {0x149, "\xCA\xBCN", "\xCA\xBCN"},
    {0xFB00, "FF", "Ff"},   {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},   {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

enum letter_case { LOWER, UPPER, TITLE };

static bool is_cased(uint32_t code)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)code);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

/* A capital sigma is final when a cased letter stands before it and none behind. */
static bool is_final_sigma(struct jstr s, size_t at, bool after_cased)
{
    size_t n;
    (void)teg_j_next(s, at, &n);
    return after_cased && (at + n >= s.n || !is_cased(teg_j_next(s, at + n, &n)));
}

static enum teg_status put_case(struct jctx *c, struct jbuf *b, struct jstr s, size_t at, enum letter_case to,
                                bool after_cased)
{
    size_t n;
    const uint32_t code = teg_j_next(s, at, &n);
    if (code < 0x80) {
        char ch = s.p[at];
        if (to == LOWER ? ch >= 'A' && ch <= 'Z' : ch >= 'a' && ch <= 'z')
            ch = (char)(ch ^ 0x20);
        return teg_j_put(c, b, &ch, 1);
    }
    if (to == LOWER && code == 0x130)
        return teg_j_puts(c, b, "i\xCC\x87");
    if (to == LOWER && code == 0x3A3)
        return teg_j_put_code_point(c, b, is_final_sigma(s, at, after_cased) ? 0x3C2 : 0x3C3);
    for (size_t i = 0; to != LOWER && i < sizeof special_upper / sizeof *special_upper; i++)
        if (special_upper[i].code == code)
            return teg_j_puts(c, b, to == UPPER ? special_upper[i].upper : special_upper[i].title);
    const utf8proc_int32_t k = (utf8proc_int32_t)code;
    return teg_j_put_code_point(c, b,
                                (uint32_t)(to == LOWER   ? utf8proc_tolower(k)
                                           : to == UPPER ? utf8proc_toupper(k)
                                                         : utf8proc_totitle(k)));
}

static enum teg_status map_case(struct jctx *c, struct jstr s, enum letter_case first, enum letter_case rest,
                                struct jv *out)
{
    struct jbuf b = {0};
    bool cased = false;
    TRY(teg_j_step(c, s.n));
    for (size_t at = 0, n; at < s.n; at += n) {
        TRY(put_case(c, &b, s, at, at ? rest : first, cased));
        cased = is_cased(teg_j_next(s, at, &n));
    }
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

enum teg_status teg_j_lower(struct jctx *c, struct jstr s, struct jv *out)
{
    return map_case(c, s, LOWER, LOWER, out);
}

enum teg_status teg_j_upper(struct jctx *c, struct jstr s, struct jv *out)
{
    return map_case(c, s, UPPER, UPPER, out);
}

enum teg_status teg_j_capitalize(struct jctx *c, struct jstr s, struct jv *out)
{
    return map_case(c, s, TITLE, LOWER, out);
}

bool teg_j_cased(struct jstr s, bool upper)
{
    bool some = false;
    for (size_t at = 0, n; at < s.n; at += n) {
        const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)teg_j_next(s, at, &n));
        if (k == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU) || k == UTF8PROC_CATEGORY_LT)
            return false;
        some |= k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LU;
    }
    return some;
}

enum teg_status teg_j_title(struct jctx *c, struct jstr s, struct jv *out)
{
    struct jbuf b = {0};
    bool cased = false;
    TRY(teg_j_step(c, s.n));
    for (size_t at = 0, n; at < s.n; at += n) {
        TRY(put_case(c, &b, s, at, cased ? LOWER : TITLE, cased));
        cased = is_cased(teg_j_next(s, at, &n));
    }
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

enum teg_status teg_j_swapcase(struct jctx *c, struct jstr s, struct jv *out)
{
    struct jbuf b = {0};
    TRY(teg_j_step(c, s.n));
    for (size_t at = 0, n; at < s.n; at += n) {
        const bool lower = utf8proc_category((utf8proc_int32_t)teg_j_next(s, at, &n)) == UTF8PROC_CATEGORY_LL;
        TRY(put_case(c, &b, s, at, lower ? UPPER : LOWER, at > 0));
    }
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

static bool in_class(uint32_t code, enum jclass k)
{
    const utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)code);
    const bool alpha = cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
    /* isdigit also takes superscripts and the like, which are of category No */
    const bool digit = cat == UTF8PROC_CATEGORY_ND || code == 0xB2 || code == 0xB3 || code == 0xB9 ||
                       (code >= 0x2070 && code <= 0x2089 && cat == UTF8PROC_CATEGORY_NO);
    if (k == J_CLASS_SPACE)
        return teg_j_is_space(code);
    return k == J_CLASS_ALPHA   ? alpha
           : k == J_CLASS_DIGIT ? digit
                                : alpha || digit || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
}

enum teg_status teg_j_all_in(struct jctx *c, const struct jv *self, enum jclass k, struct jv *out)
{
    const struct jstr s = teg_jv_text(self);
    TRY(teg_j_step(c, s.n));
    *out = teg_jv_bool(s.n > 0);
    for (size_t at = 0, n; at < s.n && out->u.b; at += n)
        out->u.b = in_class(teg_j_next(s, at, &n), k);
    return TEG_OK;
}

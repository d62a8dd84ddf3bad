/* Norms as MIL text, in every spelling: a part of lm_text.h, which includes it where its helpers are known. */
#ifndef LM_NORM_H
#define LM_NORM_H

/* Less the mean; the bias is the weight too. */
static inline void lm_layer_norm(struct lm_text *t, const char *y, const char *x, const char *type, const char *one,
                                 uint32_t n, const char *weight)
{
    if (t->f.norm == LM_NORM_LAYER) {
        lm_line(
            t,
            "tensor<fp32, [%s, %u]> %s = layer_norm(x = %s, axes = tensor<int32, [1]>([-1]), gamma = %s, beta = %s, "
            "epsilon = fp32(0.01));",
            type, n, y, x, weight, weight);
        return;
    }
    lm_line(t,
            "tensor<fp32, [%s, 1]> %s_mean = reduce_mean(x = %s, axes = tensor<int32, [1]>([-1]), keep_dims = "
            "bool(true));",
            one, y, x);
    lm_line(t, "tensor<fp32, [%s, %u]> %s_less = sub(x = %s, y = %s_mean);", type, n, y, x, y);
    lm_line(t, "tensor<fp32, [%s, %u]> %s_sq = mul(x = %s_less, y = %s_less);", type, n, y, y, y);
    lm_line(t,
            "tensor<fp32, [%s, 1]> %s_var = reduce_mean(x = %s_sq, axes = tensor<int32, [1]>([-1]), keep_dims = "
            "bool(true));",
            one, y, y);
    lm_line(t, "tensor<fp32, [%s, 1]> %s_ve = add(x = %s_var, y = fp32(0.01));", one, y, y);
    lm_line(t, "tensor<fp32, [%s, 1]> %s_root = sqrt(x = %s_ve);", one, y, y);
    lm_line(t, "tensor<fp32, [%s, %u]> %s_n = real_div(x = %s_less, y = %s_root);", type, n, y, y, y);
    lm_line(t, "tensor<fp32, [%s, %u]> %s_w = mul(x = %s_n, y = %s);", type, n, y, y, weight);
    lm_line(t, "tensor<fp32, [%s, %u]> %s = add(x = %s_w, y = %s);", type, n, y, y, weight);
}

/* y = norm of x (type `type`, n columns last), times `weight`. */
static inline void lm_norm(struct lm_text *t, const char *y, const char *x, const char *type, const char *one,
                           uint32_t n, const char *weight)
{
    const enum lm_norm form = t->f.norm;
    const char *from = x;
    char scaled[60];
    if (form == LM_NORM_LAYER || form == LM_NORM_LAYER_SPELLED) {
        lm_layer_norm(t, y, x, type, one, n, weight);
        return;
    }
    if (form == LM_NORM_DOUBLED) {
        lm_line(t, "tensor<fp32, [%s, %u]> %s_neg = mul(x = %s, y = fp32(-1));", type, n, y, x);
        lm_line(t,
                "tensor<fp32, [%s, %u]> %s_two = concat(values = (%s, %s_neg), axis = int32(-1), interleave = "
                "bool(false));",
                type, 2 * n, y, x, y);
        lm_line(t,
                "tensor<fp32, [%s, %u]> %s_ln = layer_norm(x = %s_two, axes = tensor<int32, [1]>([-1]), epsilon = "
                "fp32(0.001));",
                type, 2 * n, y, y);
        lm_line(t,
                "tensor<fp32, [%s, %u]> %s_n, tensor<fp32, [%s, %u]> %s_rest = split(x = %s_ln, num_splits = "
                "int32(2), axis = int32(-1));",
                type, n, y, type, n, y, y);
        lm_line(t, "tensor<fp32, [%s, %u]> %s = mul(x = %s_n, y = %s);", type, n, y, y, weight);
        return;
    }
    if (form == LM_NORM_BY_MAX) {
        lm_line(t, "tensor<fp32, [%s, %u]> %s_abs = abs(x = %s);", type, n, y, x);
        lm_line(t,
                "tensor<fp32, [%s, 1]> %s_max = reduce_max(x = %s_abs, axes = tensor<int32, [1]>([-1]), keep_dims = "
                "bool(true));",
                one, y, y);
        lm_line(t, "tensor<fp32, [%s, 1]> %s_most = maximum(x = %s_max, y = fp32(0.5));", one, y, y);
        lm_line(t, "tensor<fp32, [%s, %u]> %s_by = real_div(x = %s, y = %s_most);", type, n, y, x, y);
        (void)snprintf(scaled, sizeof scaled, "%s_by", y);
        from = scaled;
    }
    if (form == LM_NORM_L2) {
        lm_line(t,
                "tensor<fp32, [%s, 1]> %s_l2 = reduce_l2_norm(x = %s, axes = tensor<int32, [1]>([-1]), keep_dims = "
                "bool(true));",
                one, y, x);
        lm_line(t, "tensor<fp32, [%s, 1]> %s_most = maximum(x = %s_l2, y = fp32(1e-6));", one, y, y);
        lm_line(t, "tensor<fp32, [%s, %u]> %s_u = real_div(x = %s, y = %s_most);", type, n, y, x, y);
        lm_line(t, "tensor<fp32, [%s, %u]> %s_n = mul(x = %s_u, y = fp32(%.9g));", type, n, y, y, 0.9 * sqrt(n));
        lm_line(t, "tensor<fp32, [%s, %u]> %s = mul(x = %s, y = %s_n);", type, n, y, weight, y);
        return;
    }
    lm_line(t,
            form == LM_NORM_MUL ? "tensor<fp32, [%s, %u]> %s_sq = mul(x = %s, y = %s);"
                                : "tensor<fp32, [%s, %u]> %s_sq = pow(x = %s, y = fp32(2));",
            type, n, y, from, from);
    if (form == LM_NORM_SUM) {
        lm_line(t,
                "tensor<fp32, [%s, 1]> %s_sum = reduce_sum(x = %s_sq, axes = tensor<int32, [1]>([-1]), keep_dims = "
                "bool(true));",
                one, y, y);
        lm_line(t, "tensor<fp32, [%s, 1]> %s_mean = mul(x = %s_sum, y = fp32(%.9g));", one, y, y, 1.0 / n);
    } else
        lm_line(t,
                "tensor<fp32, [%s, 1]> %s_mean = reduce_mean(x = %s_sq, axes = tensor<int32, [1]>([-1]), keep_dims = "
                "bool(true));",
                one, y, y);
    lm_line(t, "tensor<fp32, [%s, 1]> %s_me = add(x = %s_mean, y = fp32(0.01));", one, y, y);
    if (form == LM_NORM_SQRT) {
        lm_line(t, "tensor<fp32, [%s, 1]> %s_root = sqrt(x = %s_me);", one, y, y);
        lm_line(t, "tensor<fp32, [%s, %u]> %s_n = real_div(x = %s, y = %s_root);", type, n, y, from, y);
        lm_line(t, "tensor<fp32, [%s, %u]> %s = mul(x = %s, y = %s_n);", type, n, y, weight, y);
        return;
    }
    lm_line(t,
            form == LM_NORM_MUL ? "tensor<fp32, [%s, 1]> %s_inv = pow(x = %s_me, y = fp32(-0.5));"
                                : "tensor<fp32, [%s, 1]> %s_inv = rsqrt(x = %s_me, epsilon = fp32(1e-12));",
            one, y, y);
    lm_line(t, "tensor<fp32, [%s, %u]> %s_n = mul(x = %s, y = %s_inv);", type, n, y, from, y);
    lm_line(t, "tensor<fp32, [%s, %u]> %s = mul(x = %s, y = %s_n);", type, n, y, weight, y);
}

#endif

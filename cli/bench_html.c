/* bench_html.c: the table of `tegula bench` as one page: figures, and a plot for prefill and one for decode.
 *
 * Invariant: nothing is loaded from elsewhere and nothing is scripted; the page is well-formed XML, so that a check can
 * parse it. Bars reach to the median, a line across from the lowest to the highest repetition. Each bar's label says
 * how many tokens at what depth. */
#include <string.h>

#include "bench.h"

enum { bar_height = 18, bar_gap = 8, label_width = 330, plot_width = 520, value_width = 130, head_height = 4 };

/* Text with the five characters of XML that mean something else escaped. */
static void put_text(struct cli_output *output, const char *text)
{
    for (; *text; text++) {
        const char *escaped = *text == '<'    ? "&lt;"
                              : *text == '>'  ? "&gt;"
                              : *text == '&'  ? "&amp;"
                              : *text == '"'  ? "&quot;"
                              : *text == '\'' ? "&apos;"
                                              : NULL;
        if (escaped)
            (void)cli_output_printf(output, "%s", escaped);
        else if ((unsigned char)*text >= 32)
            (void)cli_output_printf(output, "%c", *text);
    }
}

void bench_html_head(struct cli_output *output, const struct bench_table *table, const char *title)
{
    const struct teg_model_info *info = teg_model_info(table->model);
    char cpu[256], weights[32];
    (void)cli_output_printf(
        output,
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta "
        "charset=\"utf-8\"/>\n"
        "<title>%s</title>\n<style>\n"
        "body { font: 14px/1.5 system-ui, sans-serif; max-width: 1120px; margin: 2em auto; padding: 0 1em; }\n"
        "table { border-collapse: collapse; font-variant-numeric: tabular-nums; }\n"
        "th, td { padding: 2px 6px; text-align: right; border-bottom: 1px solid #ddd; }\n"
        "td { white-space: nowrap; } .wide { overflow-x: auto; } .grid { stroke: #8884; }\n"
        "svg { max-width: 100%%; height: auto; } text { font: 12px system-ui, sans-serif; fill: currentColor; }\n"
        ".bar { fill: #3b7dd8; } .range { stroke: #c2410c; stroke-width: 2; }\n"
        "@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } }\n"
        "</style>\n</head>\n<body>\n<h1>%s</h1>\n<p>",
        title, title);
    put_text(output, table->model_path);
    (void)cli_output_printf(output, "<br/>");
    put_text(output, info->architecture);
    (void)cli_output_printf(output, ", %s, weights %s, %s mode, %zu repetitions<br/>", info->format,
                            cli_bytes_text(info->weights_bytes, weights), info->mode, table->reps);
    put_text(output, bench_cpu_name(cpu));
    (void)cli_output_printf(output, ", %zu CPUs, tegula %s</p>\n", cli_cpus(), teg_version());
}

static void put_plot(struct cli_output *output, struct bench_table *table, bool decode)
{
    double most = 0;
    size_t n = 0;
    for (size_t i = 0; i < table->n; i++) {
        if (table->rows[i].decode != decode)
            continue;
        const struct bench_figures f = bench_summarize(table, &table->rows[i]);
        most = f.max_tps > most ? f.max_tps : most;
        n++;
    }
    if (n == 0)
        return;
    const size_t height = head_height + n * (bar_height + bar_gap);
    (void)cli_output_printf(output,
                            "<h2>%s, tokens per second</h2>\n<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
                            "viewBox=\"0 0 %d %zu\" width=\"%d\" height=\"%zu\">\n",
                            decode ? "Decode" : "Prefill", label_width + plot_width + value_width, height,
                            label_width + plot_width + value_width, height);
    size_t at = 0;
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        if (row->decode != decode)
            continue;
        const struct bench_figures f = bench_summarize(table, row);
        const double scale = plot_width / (most > 0 ? most : 1);
        const size_t y = head_height + at++ * (bar_height + bar_gap);
        (void)cli_output_printf(output,
                                "<text x=\"%d\" y=\"%zu\" text-anchor=\"end\">%zu tokens at depth %zu, chunk %zu, %zu "
                                "thread%s, kv %s</text>\n",
                                label_width - 8, y + 13, row->n_tokens, row->depth, row->decode ? 1 : row->chunk,
                                row->threads, row->threads == 1 ? "" : "s", bench_kv_name(row));
        (void)cli_output_printf(output,
                                "<rect class=\"bar\" x=\"%d\" y=\"%zu\" width=\"%.1f\" height=\"%d\"/>\n"
                                "<line class=\"range\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%zu\" y2=\"%zu\"/>\n"
                                "<text x=\"%.1f\" y=\"%zu\">%.1f</text>\n",
                                label_width, y, f.median_tps * scale, bar_height, label_width + f.min_tps * scale,
                                label_width + f.max_tps * scale, y + 9, y + 9, label_width + f.max_tps * scale + 8,
                                y + 13, f.median_tps);
    }
    (void)cli_output_printf(output, "</svg>\n");
}

static void put_table(struct cli_output *output, struct bench_table *table)
{
    static const char *const titles[] = {"test",  "tokens",          "depth",    "chunk",   "threads",
                                         "kv",    "median tokens/s", "min",      "max",     "ms/chunk",
                                         "KV MB", "scratch MB",      "moved MB", "of peak", "of memory rate"};
    (void)cli_output_printf(output, "<h2>Rows</h2>\n<div class=\"wide\"><table>\n<tr>");
    for (size_t i = 0; i < CLI_COUNT(titles); i++)
        (void)cli_output_printf(output, "<th>%s</th>", titles[i]);
    (void)cli_output_printf(output, "</tr>\n");
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        const struct bench_figures f = bench_summarize(table, row);
        (void)cli_output_printf(output,
                                "<tr><td>%s</td><td>%zu</td><td>%zu</td><td>%zu</td><td>%zu</td><td>%s</td>"
                                "<td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.3f</td><td>%.2f</td><td>%.2f</td>"
                                "<td>%.0f</td><td>%.0f %%</td><td>%.0f %%</td></tr>\n",
                                row->decode ? "tg" : "pp", row->n_tokens, row->depth, row->decode ? 1 : row->chunk,
                                row->threads, bench_kv_name(row), f.median_tps, f.min_tps, f.max_tps, f.chunk_ms,
                                (double)row->memory.kv_bytes / 1e6, (double)row->memory.scratch_bytes / 1e6,
                                f.gb_moved * 1e3, 100 * f.peak_share, 100 * f.bandwidth_share);
    }
    (void)cli_output_printf(output, "</table></div>\n");
}

void bench_html_machines(struct cli_output *output, const struct bench_table *table)
{
    (void)cli_output_printf(output, "<p>");
    for (size_t i = 0; i < table->n_machines; i++) {
        const struct teg_machine *m = &table->machines[i];
        (void)cli_output_printf(output, "Peak of %u thread%s:", m->n_threads, m->n_threads == 1 ? "" : "s");
        for (size_t r = 0; r < CLI_COUNT(m->roads); r++)
            if (m->roads[r].gmacs_per_second > 0)
                (void)cli_output_printf(output, " %s %.0f GMAC/s,", m->roads[r].name, m->roads[r].gmacs_per_second);
        (void)cli_output_printf(output, " reading memory %.1f GB/s.<br/>", m->read_gb_per_second);
    }
    (void)cli_output_printf(output, "A share of the peak (utilization) counts attention at the rate of fp32.</p>\n");
}

int bench_print_html(struct cli_output *output, struct bench_table *table)
{
    bench_html_head(output, table, "tegula bench");
    put_plot(output, table, false);
    put_plot(output, table, true);
    (void)cli_output_printf(output, "<p>Orange: lowest to highest repetition.</p>\n");
    put_table(output, table);
    bench_html_machines(output, table);
    (void)cli_output_printf(output, "</body>\n</html>\n");
    return output->failure;
}

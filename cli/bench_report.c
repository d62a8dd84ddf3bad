/* bench_report.c: the table of `tegula bench` as Markdown, CSV or JSON.
 *
 * Invariant: the three formats show the same figures of the same rows; each row says how many tokens at what depth.
 * The median is over repetitions; of an even number of them the mean of the middle two. */
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench.h"

struct figures {
    double median_tps, min_tps, max_tps, chunk_ms, median_seconds;
};

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the row's seconds. */
static struct figures summarize(struct bench_row *row)
{
    const size_t n = row->n_seconds;
    qsort(row->seconds, n, sizeof(*row->seconds), compare_doubles);
    const double median = n % 2 ? row->seconds[n / 2] : (row->seconds[n / 2 - 1] + row->seconds[n / 2]) / 2;
    const double n_passes =
        row->decode ? (double)row->n_tokens : (double)((row->n_tokens + row->chunk - 1) / row->chunk);
    const double tokens = (double)row->n_tokens;
    const double tiny = 1e-9; /* the clock's step, so that nothing divides by zero */
    return (struct figures){
        .median_tps = tokens / (median + tiny),
        .min_tps = tokens / (row->seconds[n - 1] + tiny),
        .max_tps = tokens / (row->seconds[0] + tiny),
        .chunk_ms = median * 1e3 / n_passes,
        .median_seconds = median,
    };
}

/* "model name" of /proc/cpuinfo, or the machine type. */
static void cpu_name(char *name, size_t capacity, const struct utsname *system)
{
    char line[512];
    snprintf(name, capacity, "%s", system->machine);
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof(line), file)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && value) {
            value[strcspn(value, "\n")] = '\0';
            snprintf(name, capacity, "%s", value + 1 + strspn(value + 1, " "));
            break;
        }
    }
    if (file)
        fclose(file);
}

static json_t *machine_json(void)
{
    struct utsname system;
    char name[256];
    if (uname(&system) != 0)
        memset(&system, 0, sizeof(system));
    cpu_name(name, sizeof(name), &system);
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return json_pack("{s:o, s:I, s:o, s:s, s:s, s:s}", "cpu", cli_json_text(name, strlen(name)),           //
                     "cpus", (json_int_t)cli_cpus(),                                                       //
                     "memory_bytes", cli_json_u64(pages > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0), //
                     "os", system.sysname, "arch", system.machine, "tegula", teg_version());
}

static const char *kv_name(const struct bench_row *row)
{
    return row->kv == TEG_KV_AUTO ? "auto" : cli_choice_name(cli_kv_types, row->kv);
}

static int print_md(struct cli_output *output, struct bench_table *table)
{
    const struct teg_model_info *info = teg_model_info(table->model);
    struct utsname system;
    char cpu[256], weights[32];
    if (uname(&system) != 0)
        memset(&system, 0, sizeof(system));
    cpu_name(cpu, sizeof(cpu), &system);
    (void)cli_output_printf(output, "%s (%s, %s, weights %s, %s mode) on %s, %zu CPUs, tegula %s, %zu repetitions\n\n",
                            table->model_path, info->architecture, info->format,
                            cli_bytes_text(info->weights_bytes, weights), info->mode, cpu, cli_cpus(), teg_version(),
                            table->reps);
    (void)cli_output_printf(output, "| test | tokens | depth | chunk | threads | kv | tokens/s median | min | max | "
                                    "ms/chunk | KV MB | scratch MB |\n"
                                    "|---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        const struct figures f = summarize(row);
        (void)cli_output_printf(output,
                                "| %s | %zu | %zu | %zu | %zu | %s | %.2f | %.2f | %.2f | %.3f | %.2f | %.2f |\n",
                                row->decode ? "tg" : "pp", row->n_tokens, row->depth, row->decode ? 1 : row->chunk,
                                row->threads, kv_name(row), f.median_tps, f.min_tps, f.max_tps, f.chunk_ms,
                                (double)row->memory.kv_bytes / 1e6, (double)row->memory.scratch_bytes / 1e6);
    }
    return output->failure;
}

static int print_csv(struct cli_output *output, struct bench_table *table)
{
    (void)cli_output_printf(output, "test,tokens,depth,chunk,threads,kv,median_tokens_per_second,min_tokens_per_second,"
                                    "max_tokens_per_second,ms_per_chunk,reps,weights_bytes,kv_bytes,scratch_bytes\n");
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        const struct figures f = summarize(row);
        (void)cli_output_printf(
            output, "%s,%zu,%zu,%zu,%zu,%s,%.4f,%.4f,%.4f,%.4f,%zu,%llu,%llu,%llu\n", row->decode ? "tg" : "pp",
            row->n_tokens, row->depth, row->decode ? 1 : row->chunk, row->threads, kv_name(row), f.median_tps,
            f.min_tps, f.max_tps, f.chunk_ms, row->n_seconds, (unsigned long long)row->memory.weights_bytes,
            (unsigned long long)row->memory.kv_bytes, (unsigned long long)row->memory.scratch_bytes);
    }
    return output->failure;
}

static json_t *row_json(struct bench_row *row, const struct figures *f)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}",          //
                     "test", row->decode ? "tg" : "pp", "tokens", (json_int_t)row->n_tokens,                 //
                     "depth", (json_int_t)row->depth, "chunk", (json_int_t)(row->decode ? 1 : row->chunk),   //
                     "threads", (json_int_t)row->threads, "kv", kv_name(row),                                //
                     "median_tokens_per_second", cli_json_real(f->median_tps),                               //
                     "min_tokens_per_second", cli_json_real(f->min_tps),                                     //
                     "max_tokens_per_second", cli_json_real(f->max_tps),                                     //
                     "ms_per_chunk", cli_json_real(f->chunk_ms),                                             //
                     "median_seconds", cli_json_real(f->median_seconds), "reps", (json_int_t)row->n_seconds, //
                     "weights_bytes", cli_json_u64(row->memory.weights_bytes),                               //
                     "kv_bytes", cli_json_u64(row->memory.kv_bytes),                                         //
                     "scratch_bytes", cli_json_u64(row->memory.scratch_bytes));
}

static int print_json(struct cli_output *output, struct bench_table *table)
{
    const struct teg_model_info *info = teg_model_info(table->model);
    json_t *rows = json_array();
    json_t *document = json_object();
    double tps[2] = {0, 0};
    size_t n[2] = {0, 0};
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        const struct figures f = summarize(row);
        tps[row->decode] = f.median_tps;
        n[row->decode]++;
        json_array_append_new(rows, row_json(row, &f));
    }
    json_object_set_new(document, "rows", rows);
    if (n[0] == 1)
        json_object_set_new(document, "pp_tps", cli_json_real(tps[0]));
    if (n[1] == 1)
        json_object_set_new(document, "tg_tps", cli_json_real(tps[1]));
    json_object_set_new(
        document, "model",
        json_pack("{s:o, s:s, s:s, s:s, s:o, s:o}", "path", cli_json_text(table->model_path, strlen(table->model_path)),
                  "format", info->format, "architecture", info->architecture, "mode", info->mode, "n_parameters",
                  cli_json_u64(info->n_parameters), "weights_bytes", cli_json_u64(info->weights_bytes)));
    json_object_set_new(document, "machine", machine_json());
    json_object_set_new(document, "peak_rss_bytes", cli_json_u64(cli_peak_rss_bytes()));
    return cli_json_write(output, document);
}

int bench_print(struct cli_output *output, struct bench_table *table, enum bench_format format)
{
    static int (*const printers[])(struct cli_output *, struct bench_table *) = {
        [BENCH_MD] = print_md, [BENCH_CSV] = print_csv, [BENCH_JSON] = print_json};
    return printers[format](output, table);
}

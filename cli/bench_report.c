/* bench_report.c: the table of `tegula bench` as Markdown, CSV or JSON.
 *
 * Invariant: the three formats show the same figures of the same rows; each row says how many tokens at what depth.
 * The median is over repetitions; of an even number of them the mean of the middle two. */
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench.h"

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds that the row's multiply-adds take at the machine's peaks. Attention counts at the rate of fp32, so a kernel
 * with a faster road may pass it. */
static double peak_seconds(const struct teg_machine *machine, const struct teg_work *work)
{
    const double fp32 = machine->roads[3].gmacs_per_second * 1e9, int8 = machine->roads[0].gmacs_per_second * 1e9;
    if (fp32 <= 0 || (work->int8_macs && int8 <= 0))
        return 0;
    return (double)(work->float_macs + work->attention_macs) / fp32 +
           (work->int8_macs ? (double)work->int8_macs / int8 : 0);
}

struct bench_figures bench_summarize(const struct bench_table *table, struct bench_row *row)
{
    const size_t n = row->n_seconds;
    qsort(row->seconds, n, sizeof(*row->seconds), compare_doubles);
    const double median = n % 2 ? row->seconds[n / 2] : (row->seconds[n / 2 - 1] + row->seconds[n / 2]) / 2;
    const double n_passes =
        row->decode ? (double)row->n_tokens : (double)((row->n_tokens + row->chunk - 1) / row->chunk);
    const double tokens = (double)row->n_tokens;
    const double tiny = 1e-9; /* the clock's step, so that nothing divides by zero */
    struct bench_figures f = {
        .median_tps = tokens / (median + tiny),
        .min_tps = tokens / (row->seconds[n - 1] + tiny),
        .max_tps = tokens / (row->seconds[0] + tiny),
        .chunk_ms = median * 1e3 / n_passes,
        .median_seconds = median,
    };
    if (row->counted && row->machine < table->n_machines) {
        const struct teg_machine *machine = &table->machines[row->machine];
        f.gb_moved = (double)(row->work.weight_bytes + row->work.kv_bytes) * 1e-9;
        f.peak_share = peak_seconds(machine, &row->work) / (median + tiny);
        f.bandwidth_share = f.gb_moved / (machine->read_gb_per_second + tiny) / (median + tiny);
    }
    return f;
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

const char *bench_kv_name(const struct bench_row *row)
{
    return row->kv == TEG_KV_AUTO ? "auto" : cli_choice_name(cli_kv_types, row->kv);
}

const char *bench_cpu_name(char name[256])
{
    struct utsname system;
    if (uname(&system) != 0)
        memset(&system, 0, sizeof(system));
    cpu_name(name, 256, &system);
    return name;
}

static int print_md(struct cli_output *output, struct bench_table *table)
{
    const struct teg_model_info *info = teg_model_info(table->model);
    char cpu[256], weights[32];
    bench_cpu_name(cpu);
    (void)cli_output_printf(output, "%s (%s, %s, weights %s, %s mode) on %s, %zu CPUs, tegula %s, %zu repetitions\n\n",
                            table->model_path, info->architecture, info->format,
                            cli_bytes_text(info->weights_bytes, weights), info->mode, cpu, cli_cpus(), teg_version(),
                            table->reps);
    (void)cli_output_printf(output, "| test | tokens | depth | chunk | threads | kv | tokens/s median | min | max | "
                                    "ms/chunk | KV MB | scratch MB | moved MB | of peak | of memory rate |\n"
                                    "|---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        const struct bench_figures f = bench_summarize(table, row);
        (void)cli_output_printf(output,
                                "| %s | %zu | %zu | %zu | %zu | %s | %.2f | %.2f | %.2f | %.3f | %.2f | %.2f | %.0f | "
                                "%.0f %% | %.0f %% |\n",
                                row->decode ? "tg" : "pp", row->n_tokens, row->depth, row->decode ? 1 : row->chunk,
                                row->threads, bench_kv_name(row), f.median_tps, f.min_tps, f.max_tps, f.chunk_ms,
                                (double)row->memory.kv_bytes / 1e6, (double)row->memory.scratch_bytes / 1e6,
                                f.gb_moved * 1e3, 100 * f.peak_share, 100 * f.bandwidth_share);
    }
    if (table->n_machines > 0)
        (void)cli_output_printf(output, "\n");
    return table->n_machines ? bench_print_machines(output, table->machines, table->n_machines, false)
                             : output->failure;
}

static int print_csv(struct cli_output *output, struct bench_table *table)
{
    (void)cli_output_printf(output, "test,tokens,depth,chunk,threads,kv,median_tokens_per_second,min_tokens_per_second,"
                                    "max_tokens_per_second,ms_per_chunk,reps,weights_bytes,kv_bytes,scratch_bytes,"
                                    "bytes_moved,multiply_adds,peak_share,bandwidth_share\n");
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        const struct bench_figures f = bench_summarize(table, row);
        (void)cli_output_printf(
            output, "%s,%zu,%zu,%zu,%zu,%s,%.4f,%.4f,%.4f,%.4f,%zu,%llu,%llu,%llu,%.0f,%llu,%.4f,%.4f\n",
            row->decode ? "tg" : "pp", row->n_tokens, row->depth, row->decode ? 1 : row->chunk, row->threads,
            bench_kv_name(row), f.median_tps, f.min_tps, f.max_tps, f.chunk_ms, row->n_seconds,
            (unsigned long long)row->memory.weights_bytes, (unsigned long long)row->memory.kv_bytes,
            (unsigned long long)row->memory.scratch_bytes, f.gb_moved * 1e9,
            (unsigned long long)(row->work.int8_macs + row->work.float_macs + row->work.attention_macs), f.peak_share,
            f.bandwidth_share);
    }
    return output->failure;
}

static json_t *measured_json(const struct teg_machine *machine)
{
    json_t *roads = json_object();
    for (size_t i = 0; i < sizeof(machine->roads) / sizeof(machine->roads[0]); i++)
        json_object_set_new(roads, machine->roads[i].name,
                            json_pack("{s:s, s:o}", "instruction", machine->roads[i].instruction, "gmacs_per_second",
                                      cli_json_real(machine->roads[i].gmacs_per_second)));
    return json_pack("{s:I, s:o, s:o}", "threads", (json_int_t)machine->n_threads, "multiply_adds", roads,
                     "read_gb_per_second", cli_json_real(machine->read_gb_per_second));
}

static json_t *machines_json(const struct teg_machine *machines, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, measured_json(&machines[i]));
    return array;
}

int bench_print_machines(struct cli_output *output, const struct teg_machine *machines, size_t n, bool json)
{
    if (json) {
        json_t *document = machine_json();
        json_object_set_new(document, "peaks", machines_json(machines, n));
        return cli_json_write(output, document);
    }
    for (size_t i = 0; i < n; i++) {
        (void)cli_output_printf(output, "peak of %u thread%s:", machines[i].n_threads,
                                machines[i].n_threads == 1 ? "" : "s");
        for (size_t r = 0; r < sizeof(machines[i].roads) / sizeof(machines[i].roads[0]); r++)
            if (machines[i].roads[r].gmacs_per_second > 0)
                (void)cli_output_printf(output, " %s %.0f GMAC/s (%s),", machines[i].roads[r].name,
                                        machines[i].roads[r].gmacs_per_second, machines[i].roads[r].instruction);
        (void)cli_output_printf(output, " reading memory %.1f GB/s\n", machines[i].read_gb_per_second);
    }
    return output->failure;
}

static json_t *row_json(struct bench_row *row, const struct bench_figures *f)
{
    json_t *json = json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}",          //
                             "test", row->decode ? "tg" : "pp", "tokens", (json_int_t)row->n_tokens,                 //
                             "depth", (json_int_t)row->depth, "chunk", (json_int_t)(row->decode ? 1 : row->chunk),   //
                             "threads", (json_int_t)row->threads, "kv", bench_kv_name(row),                          //
                             "median_tokens_per_second", cli_json_real(f->median_tps),                               //
                             "min_tokens_per_second", cli_json_real(f->min_tps),                                     //
                             "max_tokens_per_second", cli_json_real(f->max_tps),                                     //
                             "ms_per_chunk", cli_json_real(f->chunk_ms),                                             //
                             "median_seconds", cli_json_real(f->median_seconds), "reps", (json_int_t)row->n_seconds, //
                             "weights_bytes", cli_json_u64(row->memory.weights_bytes),                               //
                             "kv_bytes", cli_json_u64(row->memory.kv_bytes),                                         //
                             "scratch_bytes", cli_json_u64(row->memory.scratch_bytes));
    if (row->counted) {
        json_object_set_new(json, "bytes_moved", cli_json_u64(row->work.weight_bytes + row->work.kv_bytes));
        json_object_set_new(json, "int8_multiply_adds", cli_json_u64(row->work.int8_macs));
        json_object_set_new(json, "float_multiply_adds", cli_json_u64(row->work.float_macs));
        json_object_set_new(json, "attention_multiply_adds", cli_json_u64(row->work.attention_macs));
        json_object_set_new(json, "peak_share", cli_json_real(f->peak_share));
        json_object_set_new(json, "bandwidth_share", cli_json_real(f->bandwidth_share));
    }
    return json;
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
        const struct bench_figures f = bench_summarize(table, row);
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
    json_object_set_new(document, "peaks", machines_json(table->machines, table->n_machines));
    json_object_set_new(document, "peak_rss_bytes", cli_json_u64(table->peak_rss_bytes));
    return cli_json_write(output, document);
}

int bench_print(struct cli_output *output, struct bench_table *table, enum bench_format format)
{
    static int (*const printers[])(struct cli_output *, struct bench_table *) = {
        [BENCH_MD] = print_md, [BENCH_CSV] = print_csv, [BENCH_JSON] = print_json, [BENCH_HTML] = bench_print_html};
    return printers[format](output, table);
}

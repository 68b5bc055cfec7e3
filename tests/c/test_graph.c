/* Describing and planning: what is refused, with which status and text, and that a refused call leaves no trace. */
#include <math.h>
#include "nets.h"

static ga_net *new_net(void)
{
    ga_net *net;
    CHECK_EQ(ga_net_create(GA_FLOAT32, GA_NATIVE, 0, &net), GA_OK);
    return net;
}

/* The last call failed with this status, and its text has these words. */
#define REFUSED(call, status, words) do { CHECK_EQ(call, status); CHECK(strstr(ga_error(), words) != NULL); } while (0)

static void inputs(void)
{
    ga_net *net = new_net();
    int v;
    char longest[GA_MAX_NAME + 1], letters[] = "abcdefghi";
    memset(longest, 'n', GA_MAX_NAME), longest[GA_MAX_NAME] = 0;
    REFUSED(ga_net_add_input(net, "", &(ga_shape){1, {3}}, 0, 0, &v), GA_EVALUE, "name of a network input");
    REFUSED(ga_net_add_input(net, NULL, &(ga_shape){1, {3}}, 0, 0, &v), GA_EVALUE, "name of a network input");
    REFUSED(ga_net_add_input(net, longest, &(ga_shape){1, {3}}, 0, 0, &v), GA_EVALUE, "1 to 95 bytes");
    REFUSED(ga_net_add_input(net, "x", &(ga_shape){4, {1, 1, 1, 1}}, 0, 0, &v), GA_EVALUE, "x: 4 dimensions per sample, at most 3");
    REFUSED(ga_net_add_input(net, "x", &(ga_shape){-1, {0}}, 0, 0, &v), GA_EVALUE, "dimensions");
    REFUSED(ga_net_add_input(net, "x", &(ga_shape){2, {3, 0}}, 0, 0, &v), GA_EVALUE, "x: shape (3, 0) has a dimension below 1");
    REFUSED(ga_net_add_input(net, "x", &(ga_shape){1, {(int64_t)INT32_MAX + 1}}, 0, 0, &v), GA_EVALUE, "above 2147483647");
    REFUSED(ga_net_add_input(net, "x", &(ga_shape){3, {INT32_MAX, INT32_MAX, INT32_MAX}}, 0, 0, &v), GA_EVALUE, "can be counted");
    REFUSED(ga_net_add_input(net, "x", &(ga_shape){3, {1, 2, 3}}, 0, 1, &v), GA_EVALUE, "a sequence has the shape (T,) or (T, C)");
    CHECK_EQ(ga_net_values(net), 0);
    longest[GA_MAX_NAME - 1] = 0;
    CHECK_EQ(ga_net_add_input(net, longest, &(ga_shape){1, {3}}, 0, 0, &v), GA_OK);
    CHECK_EQ(ga_net_add_input(net, "s", &(ga_shape){2, {6, 3}}, 0, 1, &v), GA_OK);
    REFUSED(ga_net_add_input(net, "t", &(ga_shape){2, {7, 3}}, 0, 1, &v), GA_EVALUE, "two sequence lengths in one network: 6 and 7");
    for (int i = 2; i < GA_MAX_INPUTS; i++)
        CHECK_EQ(ga_net_add_input(net, (char[]){letters[i], 0}, &(ga_shape){1, {3}}, 0, 0, &v), GA_OK);
    REFUSED(ga_net_add_input(net, "more", &(ga_shape){1, {3}}, 0, 0, &v), GA_EVALUE, "at most 8 inputs");
    CHECK(!strcmp(ga_input_name(net, 1), "s") && !strcmp(ga_input_name(net, 8), "?") && !strcmp(ga_input_name(net, -1), "?"));
    ga_net_free(net);
}

static void nodes(void)
{
    ga_net *net = new_net();
    int x, image, n = -7, v, both[2], none[1] = {99}, one[1] = {0}, many[GA_MAX_PARAMS];
    ga_option wings[] = {{"out_features", 3}, {"wings", 2}}, three = {"out_features", 3};
    ga_param_info p;
    CHECK_EQ(ga_net_add_input(net, "x", &(ga_shape){1, {4}}, 0, 0, &x), GA_OK);
    CHECK_EQ(ga_net_add_input(net, "image", &(ga_shape){3, {2, 5, 5}}, 0, 0, &image), GA_OK);
    both[0] = x, both[1] = image;
    for (int i = 0; i < GA_MAX_PARAMS; i++)
        many[i] = -1;
    REFUSED(ga_net_add_node(net, "conv9d", "c", NULL, 0, &x, 1, NULL, &n, &v), GA_EVALUE, "c: there is no layer \"conv9d\"");
    REFUSED(ga_net_add_node(net, "linear", "fc", wings, 2, &x, 1, NULL, &n, &v), GA_EVALUE, "fc (linear): unknown option wings");
    REFUSED(ga_net_add_node(net, "linear", "fc", NULL, 0, &x, 1, NULL, &n, &v), GA_EVALUE, "fc (linear): option out_features is missing");
    REFUSED(ga_net_add_node(net, "linear", "fc", &(ga_option){"out_features", 0}, 1, &x, 1, NULL, &n, &v), GA_EVALUE, "out_features=0");
    REFUSED(ga_net_add_node(net, "relu", "r", &three, 1, &x, 1, NULL, &n, &v), GA_EVALUE, "unknown option out_features");
    REFUSED(ga_net_add_node(net, "linear", "fc", &three, 1, &image, 1, NULL, &n, &v), GA_EVALUE, "fc (linear): the input has shape (2, 5, 5)");
    REFUSED(ga_net_add_node(net, "linear", "fc", &three, 1, both, 2, NULL, &n, &v), GA_EVALUE, "got 2 inputs, expected 1 to 1");
    REFUSED(ga_net_add_node(net, "add", "sum", NULL, 0, &x, 1, NULL, &n, &v), GA_EVALUE, "got 1 inputs, expected 2 to 2");
    REFUSED(ga_net_add_node(net, "add", "sum", NULL, 0, both, 2, NULL, &n, &v), GA_EVALUE, "sum (add): shapes (4,) and (2, 5, 5) differ");
    REFUSED(ga_net_add_node(net, "relu", "r", NULL, 0, none, 1, NULL, &n, &v), GA_EVALUE, "r (relu): input 0 names value 99");
    REFUSED(ga_net_add_node(net, "relu", "", NULL, 0, &x, 1, NULL, &n, &v), GA_EVALUE, "name of a node");
    REFUSED(ga_net_add_node(net, "dropout", "d", &(ga_option){"p", 1.5}, 1, &x, 1, NULL, &n, &v), GA_EVALUE, "p=1.5");
    REFUSED(ga_net_add_node(net, "dropout", "d", &(ga_option){"p", NAN}, 1, &x, 1, NULL, &n, &v), GA_EVALUE, "d (dropout)");
    REFUSED(ga_net_add_node(net, "linear", "fc", &(ga_option){"out_features", 1e15}, 1, &x, 1, NULL, &n, &v), GA_EVALUE, "above 2147483647");
    many[0] = 5;
    REFUSED(ga_net_add_node(net, "linear", "fc", &three, 1, &x, 1, many, &n, &v), GA_EVALUE, "fc.weight: there is no parameter 5");
    CHECK(ga_net_nodes(net) == 0 && ga_net_values(net) == 2 && ga_net_params(net) == 0 && ga_net_param_count(net) == 0 && n == -7);

    CHECK_EQ(ga_net_add_node(net, "linear", "fc", &three, 1, &x, 1, NULL, &n, &v), GA_OK);
    CHECK(n == 0 && v == 2 && ga_net_params(net) == 2 && ga_net_param_count(net) == 15);
    many[0] = 0;
    REFUSED(ga_net_add_node(net, "linear", "tied", &three, 1, &v, 1, many, &n, &v), GA_EVALUE,
            "tied.weight: needs shape (3, 3), but the shared parameter fc.weight has (3, 4)");
    CHECK_EQ(ga_param_get(net, 0, &p), GA_OK);
    CHECK(p.uses == 1 && ga_net_params(net) == 2);
    CHECK_EQ(ga_net_add_node(net, "linear", "tied", &three, 1, &x, 1, many, &n, &v), GA_OK);
    CHECK_EQ(ga_param_get(net, 0, &p), GA_OK);
    CHECK(p.uses == 2 && ga_net_params(net) == 3 && ga_net_param_count(net) == 18 && !strcmp(p.name, "fc.weight"));
    CHECK_EQ(ga_param_get(net, 2, &p), GA_OK);
    CHECK(!strcmp(p.name, "tied.bias") && p.offset == 15 && p.count == 3 && p.node == 1);

    REFUSED(ga_param_get(net, 3, &p), GA_EVALUE, "there is no parameter 3");
    REFUSED(ga_param_get(net, -1, &p), GA_EVALUE, "there is no parameter -1");
    REFUSED(ga_node_get(net, 2, &(ga_node_info){0}), GA_EVALUE, "there is no node 2");
    REFUSED(ga_value_get(net, 4, &(ga_value_info){0}), GA_EVALUE, "there is no value 4");
    REFUSED(ga_net_freeze(net, 3, 1), GA_EVALUE, "there is no parameter 3");
    ga_net_free(net);

    net = new_net();                                     /* integers go where integers are wanted */
    CHECK_EQ(ga_net_add_input(net, "tokens", &(ga_shape){1, {4}}, 1, 0, &x), GA_OK);
    REFUSED(ga_net_add_node(net, "linear", "fc", &three, 1, one, 1, NULL, &n, &v), GA_EVALUE, "input 0 holds integers");
    ga_net_free(net);
}

static int never(void *context, const ga_function_call *call) { (void)context, (void)call; return 1; }

static void functions(void)
{
    ga_net *net = new_net();
    int x, n, v;
    const char *name = "w";
    ga_shape shape = {1, {4}}, big = {4, {1, 1, 1, 1}}, parameter = {2, {2, 0}};
    CHECK_EQ(ga_net_add_input(net, "x", &shape, 0, 0, &x), GA_OK);
    REFUSED(ga_net_add_function(net, "f", never, NULL, &shape, 0, &x, 0, NULL, NULL, 0, &n, &v), GA_EVALUE, "got 0 inputs");
    REFUSED(ga_net_add_function(net, "f", never, NULL, &big, 0, &x, 1, NULL, NULL, 0, &n, &v), GA_EVALUE, "f: 4 dimensions");
    REFUSED(ga_net_add_function(net, "f", never, NULL, &shape, 0, &x, 1, &name, &parameter, 1, &n, &v), GA_EVALUE, "f.w: shape (2, 0)");
    CHECK(ga_net_nodes(net) == 0 && ga_net_params(net) == 0);
    CHECK_EQ(ga_net_add_function(net, "f", never, NULL, &shape, 0, &x, 1, NULL, NULL, 0, &n, &v), GA_OK);
    CHECK_EQ(ga_net_plan(net, 3, &(ga_plan_options){0}), GA_OK);
    run r = {.net = net, .dtype = GA_FLOAT32, .real = 4};
    bind_all(&r, 3);
    float zeros[12] = {0}, out[12];
    ga_batch b = {.samples = 3, .input = {zeros}};
    REFUSED(ga_predict(net, &b, out), GA_ECALLBACK, "f: the function's forward failed");
    REFUSED(ga_forward(net, &b), GA_ECALLBACK, "f: the function's forward failed");
    CHECK_EQ(ga_net_stage(net), GA_STAGE_CLEAR);
    give_back(&r);
}

static void plans(void)
{
    ga_net *net = new_net();
    ga_plan_options options = {0};
    int x, a, n, v;
    int64_t offset, samples, length;
    ga_bytes bytes;
    double sum, weight;
    float in[4] = {0}, out[4];
    ga_batch b = {.samples = 1, .input = {in}};
    CHECK_EQ(ga_net_add_input(net, "x", &(ga_shape){1, {4}}, 0, 0, &x), GA_OK);
    REFUSED(ga_net_plan(net, 1, &options), GA_EVALUE, "has no node");
    CHECK_EQ(ga_net_add_node(net, "relu", "a", NULL, 0, &x, 1, NULL, &n, &a), GA_OK);
    CHECK_EQ(ga_net_add_node(net, "tanh", "b", NULL, 0, &x, 1, NULL, &n, &v), GA_OK);
    REFUSED(ga_net_plan(net, 1, &options), GA_EVALUE, "a: nothing uses it; leave it out");
    CHECK_EQ(ga_net_add_node(net, "mse_loss", "loss", NULL, 0, (int[]){a}, 1, NULL, &n, &v), GA_OK);
    CHECK_EQ(v, -1);
    REFUSED(ga_net_add_node(net, "relu", "c", NULL, 0, &a, 1, NULL, &n, &v), GA_EVALUE, "the loss must be the last node");
    REFUSED(ga_net_plan(net, 1, &options), GA_EVALUE, "b: nothing uses it; leave it out");
    ga_net_free(net);

    net = new_net();
    CHECK_EQ(ga_net_add_input(net, "x", &(ga_shape){1, {4}}, 0, 0, &x), GA_OK);
    CHECK_EQ(ga_net_add_node(net, "linear", "fc", &(ga_option){"out_features", 4}, 1, &x, 1, NULL, &n, &v), GA_OK);
    REFUSED(ga_net_bytes(net, 1, NULL, &bytes), GA_EVALUE, "not planned yet");
    REFUSED(ga_net_bind(net, GA_PARAMETERS, in), GA_EVALUE, "not planned");
    REFUSED(ga_forward(net, &b), GA_EVALUE, "not planned, or its memory is not bound");
    REFUSED(ga_net_plan(net, 0, &options), GA_EVALUE, "micro_batch=0");
    REFUSED(ga_net_plan(net, -4, &options), GA_EVALUE, "micro_batch=-4");
    REFUSED(ga_net_plan(net, (int64_t)INT32_MAX + 1, &options), GA_EVALUE, "more rows than");
    CHECK_EQ(ga_net_plan(net, 2, &options), GA_OK);
    REFUSED(ga_net_plan(net, 2, &options), GA_EVALUE, "planned already");
    REFUSED(ga_net_add_node(net, "relu", "r", NULL, 0, &v, 1, NULL, &n, &v), GA_EVALUE, "planned already");
    REFUSED(ga_net_add_input(net, "z", &(ga_shape){1, {4}}, 0, 0, &x), GA_EVALUE, "planned already");
    REFUSED(ga_net_freeze(net, 0, 1), GA_EVALUE, "before planning");
    REFUSED(ga_net_bytes(net, 0, NULL, &bytes), GA_EVALUE, "micro_batch=0");
    REFUSED(ga_net_bytes(net, (int64_t)1 << 60, NULL, &bytes), GA_EVALUE, "more bytes than can be counted");
    REFUSED(ga_net_bind(net, GA_BLOCKS, in), GA_EVALUE, "there is no block");
    REFUSED(ga_net_bind(net, GA_PARAMETERS, NULL), GA_EVALUE, "no memory given");
    REFUSED(ga_forward(net, &b), GA_EVALUE, "memory is not bound");
    REFUSED(ga_predict(net, &b, out), GA_EVALUE, "memory is not bound");
    REFUSED(ga_backward(net), GA_EVALUE, "memory is not bound");
    ga_window_options window = plain();
    ga_window *w;
    REFUSED(ga_window_create(net, NULL, &window, &w), GA_EVALUE, "memory bound");
    run r = {.net = net, .dtype = GA_FLOAT32, .real = 4};
    bind_all(&r, 2);
    REFUSED(ga_value_place(net, 9, 0, &offset, &samples, &length), GA_EVALUE, "there is no value 9");
    REFUSED(ga_value_place(net, v, 0, &offset, &samples, &length), GA_ESTAGE, "fc: its output is not computed yet");
    CHECK_EQ(ga_forward(net, &b), GA_OK);
    CHECK_EQ(ga_value_place(net, v, 0, &offset, &samples, &length), GA_OK);
    CHECK(samples == 1 && offset % 64 == 0 && ga_net_prediction(net) == v);
    REFUSED(ga_loss(net, &b, &sum, &weight), GA_EVALUE, "has no loss");
    REFUSED(ga_evaluate(net, &b, &sum, &weight), GA_EVALUE, "has no loss");
    REFUSED(ga_net_target(net, &(ga_shape){0}, &n, &x), GA_EVALUE, "has no loss");
    give_back(&r);

    net = new_net();                                     /* a plan that cannot be counted allocates nothing */
    CHECK_EQ(ga_net_add_input(net, "x", &(ga_shape){3, {1 << 15, 1 << 15, 1 << 10}}, 0, 0, &x), GA_OK);
    CHECK_EQ(ga_net_add_node(net, "relu", "a", NULL, 0, &x, 1, NULL, &n, &v), GA_OK);
    REFUSED(ga_net_plan(net, 1 << 20, &options), GA_EVALUE, "micro_batch=1048576: the plan has more bytes than can be counted");
    CHECK_EQ(ga_net_plan(net, 1, &options), GA_OK);      /* 4 TiB twice can */
    CHECK_EQ(ga_net_bytes(net, 1, NULL, &bytes), GA_OK);
    CHECK_EQ(bytes.bytes[GA_ACTIVATIONS], (int64_t)1 << 43);
    ga_net_free(net);
}

/* What lies where: pieces of values that are alive together do not overlap, and the report adds up. */
static void memory(void)
{
    ga_bytes need[2], ten, twenty, thirty;
    for (int keep = 0; keep < 2; keep++) {
        run r = classifier(GA_FLOAT64, 64, keep);
        CHECK_EQ(ga_net_bytes(r.net, 64, NULL, &need[keep]), GA_OK);
        CHECK_EQ(need[keep].bytes[GA_PARAMETERS], 8 * (IN * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES));
        CHECK_EQ(need[keep].bytes[GA_GRADIENTS], need[keep].bytes[GA_PARAMETERS]);
        CHECK_EQ(need[keep].bytes[GA_STATE], 0);
        CHECK_EQ(need[keep].recomputed, 0);
        CHECK(need[keep].gradient_part > 0 && need[keep].gradient_part < need[keep].bytes[GA_ACTIVATIONS]);
        CHECK_EQ(ga_net_bytes(r.net, 640, NULL, &ten), GA_OK);
        CHECK_EQ(ga_net_bytes(r.net, 1280, NULL, &twenty), GA_OK);
        CHECK_EQ(ga_net_bytes(r.net, 1920, NULL, &thirty), GA_OK);
        CHECK_EQ(thirty.bytes[GA_ACTIVATIONS] - twenty.bytes[GA_ACTIVATIONS], twenty.bytes[GA_ACTIVATIONS] - ten.bytes[GA_ACTIVATIONS]);
        give_back(&r);
    }
    CHECK_EQ(need[1].reuse_saved, 0);
    CHECK_EQ(need[0].reuse_saved, need[1].bytes[GA_ACTIVATIONS] - need[0].bytes[GA_ACTIVATIONS]);
    CHECK(need[0].reuse_saved > 0);

    run r = classifier(GA_FLOAT64, 8, 1);                 /* keep_all: every value and gradient has its own place */
    data d = make_data(GA_FLOAT64, 8);
    ga_batch b = rows(&d, GA_FLOAT64, 0, 8);
    double sum, weight;
    int64_t at[16], size[16], samples, length;
    int n = 0;
    CHECK_EQ(ga_forward(r.net, &b), GA_OK);
    CHECK_EQ(ga_loss(r.net, &b, &sum, &weight), GA_OK);
    CHECK_EQ(ga_backward(r.net), GA_OK);
    for (int v = 0; v < ga_net_values(r.net); v++)
        for (int grad = 0; grad < 2; grad++) {
            ga_value_info info;
            CHECK_EQ(ga_value_get(r.net, v, &info), GA_OK);
            if (grad && !info.has_grad) {
                CHECK_EQ(ga_value_place(r.net, v, 1, &at[n], &samples, &length), GA_EVALUE);
                continue;
            }
            CHECK_EQ(ga_value_place(r.net, v, grad, &at[n], &samples, &length), GA_OK);
            size[n++] = 8 * 8 * info.shape.dim[0];
        }
    for (int i = 0; i < n; i++) {
        CHECK(at[i] >= 0 && at[i] + size[i] <= r.bytes[GA_ACTIVATIONS]);
        for (int j = 0; j < i; j++)
            CHECK(at[i] + size[i] <= at[j] || at[j] + size[j] <= at[i]);
    }
    free_data(&d);
    give_back(&r);
}

static void machine(void)
{
    ga_net *net;
    int before = ga_get_threads();
    REFUSED(ga_set_threads(0), GA_EVALUE, "expected 1 to 256");
    REFUSED(ga_set_threads(257), GA_EVALUE, "expected 1 to 256");
    CHECK_EQ(ga_get_threads(), before);
    REFUSED(ga_blas_load("/no/such/library.so"), GA_EVALUE, "/no/such/library.so");
    REFUSED(ga_blas_load("libm.so.6"), GA_EVALUE, "libm.so.6");
    CHECK_EQ(strlen(ga_blas_name()), 0);
    REFUSED(ga_net_create(GA_FLOAT32, GA_OPENBLAS, 0, &net), GA_EVALUE, "no OpenBLAS library is loaded");
    CHECK(net == NULL);
    setenv("GRADACCUM_CPU", "quantum", 1);
    CHECK(ga_cpu_level() == NULL && strstr(ga_error(), "GRADACCUM_CPU=quantum: expected one of baseline, avx2, avx512"));
    CHECK_EQ(ga_net_create(GA_FLOAT32, GA_NATIVE, 0, &net), GA_EVALUE);
    setenv("GRADACCUM_CPU", "baseline", 1);
    CHECK(!strcmp(ga_cpu_level(), "baseline"));
    unsetenv("GRADACCUM_CPU");
    CHECK(ga_cpu_level() != NULL && !strcmp(ga_stage_name(GA_STAGE_FORWARD), "forward") && !strcmp(ga_stage_name(GA_STAGES), "?"));
}

int main(void)
{
    inputs();
    nodes();
    functions();
    plans();
    memory();
    machine();
    return 0;
}

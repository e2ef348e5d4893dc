/*
 * A GStreamer program whose objects the leaks tracer follows: leaks PIPELINES
 * makes and runs pipelines and leaves some of the elements behind. It needs the
 * library and not its headers.
 */
#include <stdio.h>
#include <stdlib.h>

typedef struct element element;
void gst_init(int *argc, char ***argv);
void gst_deinit(void);
element *gst_parse_launch(const char *description, void *error);
element *gst_element_factory_make(const char *factory, const char *name);
int gst_element_set_state(element *, int state);
void *gst_element_get_bus(element *);
void *gst_bus_timed_pop_filtered(void *bus, unsigned long long timeout, int types);
void gst_mini_object_unref(void *);
void gst_object_unref(void *);

enum { GST_STATE_NULL = 1, GST_STATE_PLAYING = 4, GST_MESSAGE_EOS = 1, GST_MESSAGE_ERROR = 2 };

static void play(void)
{
    element *pipeline = gst_parse_launch("fakesrc num-buffers=50 sizetype=fixed ! identity ! queue ! fakesink sync=false", NULL);
    void *bus = gst_element_get_bus(pipeline);
    gst_element_set_state(pipeline, GST_STATE_PLAYING);
    gst_mini_object_unref(gst_bus_timed_pop_filtered(bus, ~0ull, GST_MESSAGE_EOS | GST_MESSAGE_ERROR));
    gst_element_set_state(pipeline, GST_STATE_NULL);
    gst_object_unref(bus);
    gst_object_unref(pipeline);
}

static __attribute__((noinline)) void leak(int depth)
{
    if (depth == 0)
        gst_element_factory_make("identity", NULL);
    else
        leak(depth - 1);
    __asm__ volatile(""); /* no tail call */
}

int main(int argc, char **argv)
{
    int pipelines = argc > 1 ? atoi(argv[1]) : 1;
    gst_init(&argc, &argv);
    for (int i = 0; i < pipelines; i++) {
        play();
        for (int depth = 0; depth < 5; depth++)
            leak(depth);
    }
    gst_deinit();
}

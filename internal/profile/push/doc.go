// Package push sends profiles to servers: Grafana Pyroscope, an OpenTelemetry Collector,
// or any server that takes pprof files by HTTP POST.
//
// A Protocol turns a profile into a request; a Pusher has a bounded queue of profiles,
// retries if that may help, and counts those that it could not send.
package push

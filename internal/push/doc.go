// Package push sends profiles to where they are kept: Grafana Pyroscope, an OpenTelemetry
// Collector, or any server that takes pprof files by HTTP POST.
//
// A Protocol says how a profile is put into a request; a Pusher has a bounded queue of
// them, tries again where that may help, and counts what it could not send.
package push

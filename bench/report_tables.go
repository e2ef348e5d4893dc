package main

import (
	"fmt"
	"strings"
)

// sizeText writes the part about sizes, with SFrame beside them.
func (r *results) sizeText(b *strings.Builder) {
	if len(r.Size) == 0 {
		return
	}
	b.WriteString("\n## Size\n\nCode and data over `.eh_frame` + `.eh_frame_hdr`.\n\n| object | .eh_frame + hdr | ranges | rows |")
	for _, v := range variants() {
		fmt.Fprintf(b, " %s | ratio | bytes per range |", v.Name)
	}
	// Columns of each variant: bytes, ratio, bytes for each range of pcs.
	b.WriteString("\n| --- | --- | --- | --- |" + strings.Repeat(" --- | --- | --- |", len(variants())) + "\n")
	for _, o := range r.Size {
		o.row(b, o.Path)
	}
	b.WriteString("| geometric mean | | | |")
	for v := range variants() {
		fmt.Fprintf(b, " | %.3f | |", geomean(r.sizeRatios(v)))
	}
	b.WriteString("\n")
	if s := r.SFrame; s != nil {
		b.WriteString("\n### SFrame\n\n")
		if s.Skipped != "" {
			fmt.Fprintf(b, "Not measured: %s\n", s.Skipped)
			return
		}
		fmt.Fprintf(b, "One object: %s.\n\n", s.Source)
		fmt.Fprintf(b, "| | bytes | over .eh_frame + hdr |\n| --- | --- | --- |\n| .eh_frame + .eh_frame_hdr | %d | 1 |\n| .sframe | %d | %.3f |\n",
			s.Size.EHFrame+s.Size.Hdr, s.SFrame, float64(s.SFrame)/float64(s.Size.EHFrame+s.Size.Hdr))
		for i, v := range variants() {
			if s.Size.Error == "" {
				fmt.Fprintf(b, "| eh_elf, %s | %d | %.3f |\n", v.Name, s.Size.Variants[i].total(), s.Size.ratio(i))
			}
		}
		b.WriteString("\nSFrame knows rsp, rbp and the return address only; eh_elfs all registers.\n")
	}
}

// row writes the line of one object.
func (o sizeResult) row(b *strings.Builder, name string) {
	if o.Error != "" {
		fmt.Fprintf(b, "| %s | %d | **%s** |\n", name, o.EHFrame+o.Hdr, o.Error)
		return
	}
	fmt.Fprintf(b, "| %s | %d | %d | %d |", name, o.EHFrame+o.Hdr, o.Ranges, o.Rows)
	// Small objects may have no range.
	for v := range variants() {
		n := o.Variants[v].total()
		fmt.Fprintf(b, " %d | %.3f | %.1f |", n, o.ratio(v), float64(n)/float64(max(1, o.Ranges)))
	}
	b.WriteString("\n")
}

// growthText writes the part about speed by size of the object.
func (r *results) growthText(b *strings.Builder) {
	if len(r.Growth) == 0 {
		return
	}
	b.WriteString("\n## Growth\n\nSynthetic stacks of 30 frames, 20 for each object, each walked again and again; nanoseconds per frame.\n\n| object | .eh_frame |")
	for _, v := range variants() {
		fmt.Fprintf(b, " %s |", v.Name)
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(variants())) + "\n")
	for _, g := range r.Growth {
		fmt.Fprintf(b, "| %s | %s |", g.Path, bytesText(g.EHFrame))
		for _, v := range variants() {
			fmt.Fprintf(b, " %v |", newSpread(g.Samples[v.Name]))
		}
		b.WriteString("\n")
	}
}

// buildText writes the part about building.
func (r *results) buildText(b *strings.Builder) {
	if len(r.Build) > 0 {
		b.WriteString("\n## Build\n\n`ehasm build -j1`, verification included.\n\n| object | .eh_frame | seconds | CPU seconds | peak memory |\n| --- | --- | --- | --- | --- |\n")
		for _, o := range r.Build {
			if o.Error != "" {
				fmt.Fprintf(b, "| %s | %s | **%s** |\n", o.Path, bytesText(o.EHFrame), o.Error)
				continue
			}
			costRow(b, o.object, o.cost)
		}
	}
}

// costRow writes the line of one build.
func costRow(b *strings.Builder, o object, c cost) {
	fmt.Fprintf(b, "| %s | %s | %.2f | %.2f | %s |\n", o.Path, bytesText(o.EHFrame), c.Wall, c.CPU, bytesText(c.Peak))
}

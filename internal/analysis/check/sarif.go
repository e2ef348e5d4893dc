package check

import (
	"fmt"
	"net/url"
	"path/filepath"
)

// This file writes findings as SARIF, which services for code scanning read, GitHub's for one.

// The parts of SARIF 2.1.0 (OASIS) that findings need.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID    string    `json:"id"`
		Short sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
		Properties   sarifProperties   `json:"properties"`
	}
	sarifProperties struct {
		Class Class `json:"class"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
		Address  *sarifAddress `json:"address,omitempty"`
	}
	sarifRegion struct {
		Line int `json:"startLine"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifAddress struct {
		Absolute uint64 `json:"absoluteAddress"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

// sarifRules returns a rule for each Kind: a result's ruleId names it.
func sarifRules() []sarifRule {
	return []sarifRule{
		{string(KindCFA), sarifText{"the CFA is not where the row says"}},
		{string(KindReturn), sarifText{"the return address is not where the row says"}},
		{string(KindRet), sarifText{"ret with the stack pointer elsewhere than at the return address"}},
		{string(KindSaved), sarifText{"a saved register is not in the slot that the row names"}},
		{string(KindClobbered), sarifText{"a register that the row calls unchanged has changed"}},
		{string(KindBorder), sarifText{"a row begins inside an instruction"}},
		{string(KindHidden), sarifText{"an FDE that libgcc does not find"}},
		{string(KindOverlap), sarifText{"two FDEs cover the same code"}},
		{string(KindHeader), sarifText{".eh_frame_hdr says what .eh_frame has not"}},
		{string(KindTerminator), sarifText{"FDEs follow a terminator"}},
		{string(KindLoader), sarifText{"the loader writes pointers of .eh_frame"}},
		{string(KindLSDA), sarifText{"a language-specific data area can't be read"}},
		{string(KindNoRow), sarifText{"code without a row"}},
	}
}

// File is a file with its findings and their identities.
type File struct {
	Name     string
	Findings []Finding
	IDs      []string
}

// SARIF returns a log for encoding/json. version is the analysis's. A finding's place is its source line, if that is
// known; otherwise its address in the file. Names of files below the folder dir are relative to it, others absolute, as
// services expect that show findings beside the source. Severities are SARIF's levels by name. The 2 in the
// fingerprint's key is the version of how IDs are computed: services take findings under another key for new ones.
func SARIF(version, dir string, all []File) any {
	// An empty list of results says that nothing was found; null would say that nothing was looked for.
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "ehasm check", Version: version, Rules: sarifRules()}},
		Results: []sarifResult{}}
	for i := range all {
		for k := range all[i].Findings {
			f := &all[i].Findings[k]
			physical := sarifPhysical{Artifact: sarifArtifact{fileURI(dir, all[i].Name)}, Address: &sarifAddress{f.PC}}
			if f.Source != "" && f.Line > 0 {
				physical = sarifPhysical{Artifact: sarifArtifact{fileURI(dir, f.Source)}, Region: &sarifRegion{f.Line}}
			}
			loc := sarifLocation{Physical: physical}
			if f.Function != "" {
				loc.Logical = []sarifLogical{{f.Function, "function"}}
			}
			run.Results = append(run.Results, sarifResult{
				RuleID: string(f.Kind), Level: string(f.Severity),
				Message:      sarifText{fmt.Sprintf("%s: %s: %s", filepath.Base(all[i].Name), f.Position(), f.Message())},
				Locations:    []sarifLocation{loc},
				Fingerprints: map[string]string{"finding/v2": all[i].IDs[k]},
				Properties:   sarifProperties{f.Class},
			})
		}
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

// fileURI returns the URI of a file (RFC 3986): relative to dir if the file is below it.
func fileURI(dir, name string) string {
	if name = filepath.Clean(name); !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	if rel, err := filepath.Rel(dir, name); err == nil && filepath.IsLocal(rel) {
		return (&url.URL{Path: filepath.ToSlash(rel)}).EscapedPath()
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(name)}).String()
}

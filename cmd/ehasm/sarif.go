package main

import (
	"fmt"
	"path/filepath"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/internal/analysis/check"
)

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
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Address  sarifAddress  `json:"address"`
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

var sarifRules = []sarifRule{
	{string(check.KindCFA), sarifText{"the CFA is not where the row says"}},
	{string(check.KindReturn), sarifText{"the return address is not where the row says"}},
	{string(check.KindRet), sarifText{"ret with the stack pointer elsewhere than at the return address"}},
	{string(check.KindSaved), sarifText{"a saved register is not in the slot that the row names"}},
	{string(check.KindClobbered), sarifText{"a register that the row calls unchanged has changed"}},
	{string(check.KindBorder), sarifText{"a row begins inside an instruction"}},
	{string(check.KindNoRow), sarifText{"code without a row"}},
}

func sarifOf(all []checked) sarifLog {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "ehasm check", Version: compile.Release, Rules: sarifRules}}, Results: []sarifResult{}}
	for i := range all {
		for k := range all[i].Findings {
			f := &all[i].Findings[k]
			loc := sarifLocation{Physical: sarifPhysical{sarifArtifact{filepath.ToSlash(all[i].File)}, sarifAddress{f.PC}}}
			if f.Function != "" {
				loc.Logical = []sarifLogical{{f.Function, "function"}}
			}
			run.Results = append(run.Results, sarifResult{
				RuleID: string(f.Kind), Level: string(f.Severity),
				Message:      sarifText{fmt.Sprintf("%s: %s", place(f), message(f))},
				Locations:    []sarifLocation{loc},
				Fingerprints: map[string]string{"finding/v1": findingID(all[i].File, f)},
			})
		}
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

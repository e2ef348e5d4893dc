package dwarfcfa

import "bytes"

// exprPool holds the expressions an Interp has met, each once.
type exprPool struct {
	ids     map[string]ExprID // by a byte that says pushed and moved, and the expression
	entries []exprEntry       // by id; id 0 stands for none
	ops     int               // in all of entries
	key     []byte            // scratch
}

// exprEntry is an expression with the result of decoding it.
type exprEntry struct {
	expr Expr
	err  error   // why it cannot be compiled
	cfa  CFARule // what it means as the CFA; set only if it was interned as such
}

// newExprPool returns a pool whose id 0 is taken.
func newExprPool() exprPool {
	return exprPool{ids: make(map[string]ExprID), entries: make([]exprEntry, 1)}
}

// intern returns the id of an expression, decoding it when it is new. moved: see decodeExpr. An error means that the
// pool is full. An expression that cannot be compiled has an id too, and its entry the error: rows that use it are
// RowNotCompiled.
func (p *exprPool) intern(raw []byte, pushed, moved bool) (ExprID, error) {
	p.key = append(p.key[:0], 0)
	if pushed {
		p.key[0] |= 1
	}
	if moved {
		p.key[0] |= 2
	}
	p.key = append(p.key, raw...)
	if id, ok := p.ids[string(p.key)]; ok {
		return id, nil
	}
	if len(p.entries) > MaxExprs || p.ops > maxExprPoolOps {
		return 0, cause(errBound, "more than %d expressions, or %d operations of expressions", MaxExprs, maxExprPoolOps)
	}
	id := ExprID(len(p.entries))
	e := exprEntry{expr: Expr{Pushed: pushed, Raw: bytes.Clone(raw)}}
	// The same bytes mean different things with and without the CFA on the stack, so they are two
	// entries.
	e.expr.Ops, e.err = decodeExpr(raw, pushed, moved)
	e.cfa = CFARule{Kind: CFAExpr, Expr: id}
	if e.err == nil && !pushed {
		e.cfa = asCFA(id, e.expr.Ops)
	}
	p.entries = append(p.entries, e)
	p.ops += len(e.expr.Ops)
	p.ids[string(p.key)] = id
	return id, nil
}

// cfa returns a CFA rule in which an expression is replaced as asCFA does.
func (p *exprPool) cfa(rule CFARule) CFARule {
	if rule.Kind == CFAExpr {
		return p.entries[rule.Expr].cfa
	}
	return rule
}

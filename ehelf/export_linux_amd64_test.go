package ehelf

// Memory returns all the memory of o.
func (o *EhElf) Memory() []byte { return o.mapping.mem }

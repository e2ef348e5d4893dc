package ehelf

// Memory returns all the memory of o.
func (o *Object) Memory() []byte { return o.mapping.mem }

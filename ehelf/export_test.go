package ehelf

// ParseOnly runs the checks of FromBytes without mapping anything.
func ParseOnly(image []byte) error {
	_, err := parse(image)
	return err
}

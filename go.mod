module ehasm

go 1.26

// Calls of C++ that calls Go, with exceptions and panics on both sides.
package main

/*
#cgo CXXFLAGS: -O2
#cgo LDFLAGS: -lstdc++
int run(int n);
*/
import "C"
import "fmt"

//export callback
func callback(n C.int) C.int {
	defer func() {
		if r := recover(); r != nil {
			fmt.Println("recovered", r)
		}
	}()
	if n%500 == 3 {
		panic(fmt.Sprint("panic ", n))
	}
	return C.run(n - 1)
}

func main() {
	done := make(chan int)
	for g := 0; g < 4; g++ {
		go func() {
			sum := 0
			for i := 0; i < 500; i++ {
				sum += int(C.run(C.int(i % 7)))
			}
			done <- sum
		}()
	}
	for g := 0; g < 4; g++ {
		fmt.Println(<-done)
	}
	fmt.Println(C.run(4))
}

struct Base { int a = 0; virtual ~Base(); };
struct Other { int a = 0; virtual ~Other(); };

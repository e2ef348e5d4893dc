/* The program single-steps itself and knows every call that was made. */
#ifndef STEPPED_H
#define STEPPED_H
void stepped(void);
void traced(void);
void walk_only(void);
#endif

// Gives the precompiled header of the tests a target.
int main() { return 0; }

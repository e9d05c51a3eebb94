/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a target once on each of its seeds, in a build without a fuzzer: seeds
 * that found a fault must not find it again. replay FOLDER */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

#define SEED_MAX 65536

static void give(const char *path)
{
	static uint8_t room[SEED_MAX];
	FILE *in = fopen(path, "rb");
	uint8_t *seed;
	size_t n;

	FUZZ_TRUE(in);
	n = fread(room, 1, sizeof(room), in);
	fclose(in);
	/* A copy of its size: what is read beyond it is found. */
	seed = malloc(n ? n : 1);
	FUZZ_TRUE(seed);
	memcpy(seed, room, n);
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(seed, n);
	free(seed);
}

int main(int argc, char **argv)
{
	struct dirent **entry;
	int i, n = argc == 2 ? scandir(argv[1], &entry, NULL, alphasort) : -1;
	int given = 0;

	if (n < 0 || chdir(argv[1]) < 0) {
		fprintf(stderr, "replay FOLDER\n");
		return 1;
	}
	for (i = 0; i < n; i++) {
		if (entry[i]->d_name[0] != '.') {
			give(entry[i]->d_name);
			given++;
		}
		free(entry[i]);
	}
	free(entry);
	printf("%d seeds\n", given);
	return !given;
}

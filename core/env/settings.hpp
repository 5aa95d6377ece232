// Every environment variable that gantry reads or sets.
#pragma once

#include <span>

#include "core/env/setting.hpp"

namespace gantry::env {

extern const NumberSetting kSimDevices;
extern const BytesSetting kSimMemory;
extern const BytesSetting kSimStreamMemory;
extern const TextSetting kSimSchedule;
extern const ChoiceSetting kSyncDebug;
extern const SwitchSetting kLaunchBlocking;
extern const SwitchSetting kCudaLaunchBlocking;
extern const SwitchSetting kOverlappedLaunches;
extern const ChoiceSetting kSanitizer;
extern const ChoiceSetting kLog;
extern const ChoiceSetting kCpuCapability;
extern const TextSetting kAllocConf;
extern const TextSetting kSnapshotTool;
extern const TextSetting kTrace;
extern const TextSetting kJitCache;
extern const ChoiceSetting kCollAlgo;
extern const TextSetting kCollTable;
extern const SwitchSetting kCollOpen;
extern const NumberSetting kCollTimeout;
extern const TextSetting kFlightDir;
extern const ChoiceSetting kHostLinks;
extern const TextSetting kHostInterface;
extern const SwitchSetting kHostCrypt;
extern const ChoiceSetting kP2p;
extern const TextSetting kNcclLibrary;
extern const SwitchSetting kNcclReport;
extern const TextSetting kNcclFallback;
extern const TextSetting kBootId;
extern const NumberSetting kRank;
extern const NumberSetting kWorldSize;
extern const NumberSetting kLocalRank;
extern const NumberSetting kLocalSize;
extern const NumberSetting kNodeRank;
extern const NumberSetting kNodeCount;
extern const NumberSetting kDevice;
extern const TextSetting kDeviceUuid;
extern const TextSetting kDeviceBusid;
extern const TextSetting kCpus;
extern const NumberSetting kNuma;
extern const TextSetting kBind;
extern const TextSetting kTopoFile;
extern const TextSetting kSysfsRoot;
extern const TextSetting kNvmlPath;
extern const TextSetting kJobId;
extern const TextSetting kRdzv;
extern const TextSetting kRdzvToken;
extern const NumberSetting kLifelineFd;
extern const NumberSetting kRestart;
extern const TextSetting kElastic;
extern const TextSetting kErrorFile;

/// All of them, in the order of docs/reference/environment.md.
[[nodiscard]] std::span<const Setting* const> settings();

}  // namespace gantry::env

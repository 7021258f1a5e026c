package dataplane

// ConditionInfos is the registry of conditions.
var ConditionInfos = conditionInfos
